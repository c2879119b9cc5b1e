// Package portable has the archive of a portable bundle: the files, the agent's memory and the
// conversation of a session in one file, from which the session can continue in another
// installation or at another provider.
//
// An archive is a tar file, compressed with gzip, with these entries in this order:
//
//	repository.bundle       the history of the repository, as git bundle makes it; absent where there is none
//	workspace/PATH          files and links of the workspace that the repository has not, or has otherwise
//	agent/N                 the agent's own files, whose paths the manifest has
//	conversation.jsonl      the blocks of the conversation, one line for each; absent where the agent's files have all
//	manifest.json           a Manifest, which lists every entry before it with its size and SHA-256
//
// The manifest is last: an archive without it is truncated and refused. [Read] verifies the whole
// archive, and refuses entries that could be written outside of a workspace or exceed [Limits].
// Callers of Read must stage the entries until it returns, so that a refused archive leaves no
// files.
package portable
