// Package worktree packs the files of a workspace into portable archives and unpacks them: the
// runner for the workspace of a sandbox, the command line for a directory of its user.
//
// A repository is packed as the git bundle of its branches and tags plus the files that differ from
// its head; other files are packed unchanged. Ignored files and files over the limits are omitted
// and listed in the manifest. Of git's own directory only commits are packed: no hooks, no
// configuration, no index.
package worktree
