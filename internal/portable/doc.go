// Package portable is the archive of a portable bundle: the files, the agent's memory and the conversation of a session in
// one file, from which the session can be continued in another installation or at another provider.
//
// An archive is a tar file, compressed with gzip, with these entries in this order:
//
//	repository.bundle       the history of the repository, as git bundle makes it; absent where there is none
//	workspace/PATH          files and links of the workspace that the repository has not, or has otherwise
//	agent/N                 the agent's own files, whose paths the manifest has
//	conversation.jsonl      the blocks of the conversation, one line for each; absent where the agent's files have all
//	manifest.json           a Manifest, which lists every entry before it with its size and SHA-256
//
// The manifest is last: an archive without it was cut short, and no reader accepts it. [Read] checks everything that an
// archive says of itself, and refuses what could write outside of a workspace or is larger than [Limits]. So that nothing
// is left of an archive that is refused, callers of Read keep what they get aside until it returns.
package portable
