// Package export is the file of an exported session: what is stored of it and the history of its workflow, for a person or a
// program elsewhere to read and replay.
//
// A file is lines of JSON, each with "record" and "data". The first is the header, which has the format and its version, the last is the
// end, which has the number of records before it; a file without one is truncated. Readers ignore records and members that they do not know.
// A version is raised if older readers would misread a file.
//
//	header                                       one
//	session, prompt…, bundle…, event…            by age; the transitions are among the events, as status
//	history…                                     events of the workflow, the newest run first, each run in order
//	end                                          one
//
// Without content a file has no text of prompts, answers, agents or files: [BareSession], [BarePrompt] and [Event.Bare] say what stays. The
// history has ids, states, the reasons of errors, the address of the repository and a title that a person gave, which replay needs. The API masks the values of secrets in all of it.
package export
