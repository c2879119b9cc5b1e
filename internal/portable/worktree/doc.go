// Package worktree moves the files of a workspace into portable archives and out of them: the runner does for the workspace of
// a sandbox, and the command line for a directory of its user.
//
// A repository goes as the bundle of its branches and tags and what differs from its head; other files go as they are. What the
// repository ignores is left out, and so is what is too large; the manifest says so. Nothing of git's own
// directory but commits goes: no hooks, no configuration, no index.
package worktree
