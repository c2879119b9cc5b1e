// Package follow reads the agent's changes on disk and sends the data that a worker lacks: from the
// agent's transcript files, and from the files of the workspace.
//
//	transcript files ── poll each second, at a flush, at a seal ──▶ Transcripts ─▶ segments
//	workspace ── inotify, else poll ──▶ workspace.Index ─▶ Watch ─▶ changes, request for a diff
//
// Invariants:
//   - A path's version rises whenever bytes that were read before are no longer there. Versions
//     never decrease while the runner lives, whichever link has read the file.
//   - A flush and a seal compare everything that was read before; a poll compares only the
//     beginning and the end.
//   - A flush and a seal read the directories of the transcripts; a poll reads them only if their times
//     of modification, which links share, show a change.
//   - A new link does not read the bytes that the previous link has sent, because the runner keeps
//     their hash. The hash is compared even if no link was open when the file changed.
//   - Only regular files are read. A FIFO or a device at the path of a transcript is ignored.
//   - One index of the workspace serves the links one after the other, under one lock.
//
// When things fail:
//
//	failure                                result
//	a transcript cannot be read            it is retried at the next poll
//	the file system reports no changes     the workspace is polled
//	the workspace cannot be read           watching ends for this link; the turn continues
//	the first scan takes long              the prompt is delivered after ten seconds
package follow
