// Package follow reads what the agent changes on the disk and sends what a worker does not have: the agent's transcript files,
// and the files of the workspace.
//
//	transcript files ── poll each second, at a flush, at a seal ──▶ Transcripts ─▶ segments
//	workspace ── inotify, else poll ──▶ workspace.Index ─▶ Watch ─▶ changes, request for a diff
//
// Invariants:
//   - A path's version rises whenever bytes that were read before are no longer there. Versions never fall while the runner
//     lives, whichever link has read the file.
//   - A flush and a seal compare everything that was read before; a poll compares the ends.
//   - What one link has sent, the next one does not read to begin: the hash of it stays in the runner. It is compared even if
//     no link was open when the file changed.
//   - Only regular files are read: a FIFO or a device at the path of a transcript is left out.
//   - One index of the workspace serves the links one after the other, under one lock.
//
// When things fail:
//
//	failure                                what follows
//	a transcript cannot be read            it waits for the next poll
//	the file system reports no changes     the workspace is polled
//	the workspace cannot be read           watching ends for this link; the turn continues
//	the first look takes long              the prompt is delivered after ten seconds
package follow
