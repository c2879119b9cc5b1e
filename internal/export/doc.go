// Package export is the file of an exported session: its stored data and the history of its
// workflow, which another person or program can read and replay.
//
// A file has lines of JSON, each with "record" and "data". The first is the header with the format
// and its version. The last is the end with the number of records before it; a file without it is
// truncated. Readers ignore unknown records and members. The version is raised if older readers
// would misread a file.
//
//	header                                       one
//	session, prompt…, bundle…, event…            by age; the transitions are among the events, as status
//	history…                                     events of the workflow, the newest run first, each run in order
//	end                                          one
//
// Without content a file has no text of prompts, answers, agents or files: see [BareSession],
// [BarePrompt] and [Event.Bare]. The history has ids, states, the reasons of errors, the URL of the
// repository and a title set by a person, which replay needs. The API masks the values of secrets
// in all of it.
package export
