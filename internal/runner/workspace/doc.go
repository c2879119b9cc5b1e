// Package workspace tracks the files of an agent's working directory: the current files, the
// changes since the last report to a worker, and the difference from the session's beginning.
//
//	inotify ──▶ Watcher ──wake──▶ (package follow) ──▶ Index.Pass ──▶ Index.Report ──▶ worker
//	polling ───────────────────▶                             │
//	                                                    walk, ignore rules
//
// # Tracked files
//
// All regular files below the directory are tracked, by their path relative to it, except: names
// that are not UTF-8 or longer than workspacefile.MaxPath; everything called .git or in a directory
// called node_modules; the attachments of prompts (workspacefile.AttachmentDir); and, inside a
// repository, files that its ignore files match. Symbolic links are neither tracked nor followed.
// .gitignore files and .git/info/exclude apply with git's own rules: the last match decides, !
// negates, a trailing / matches directories, a / elsewhere anchors the pattern to the file's
// directory, ** matches any directories. A file that matches a pattern is not tracked here even if
// git tracks it. At most workspacefile.MaxWatched files are tracked; which ones in a larger
// workspace is unspecified, but files that were tracked remain so.
//
// # Index
//
// The index contains the last report to the worker on each file, and the file's metadata at that
// time. A pass compares it with the disk by size, times and inode, and reads only files that
// differ. A file that was written so shortly before it was read that its time would not show a
// later write is read again in the next pass. The index is stored in a format that takes a few
// milliseconds to read at 10,000 files, because the first prompt after a restore, and every
// snapshot, waits for it.
//
// On a restored disk every file has another inode and another time of change, so the first pass of
// an index that was kept compares sizes, permissions and modification times, as the comparison of a
// tree does. The runner makes this pass when it starts and watches the workspace from then on, so
// that the first link waits for no pass unless the workspace has changed since, or the worker has
// not stored everything. The same pass lists everything else in the workspace, so that the
// comparison with the manifest needs no second listing. The pass of a seal does so too, unless git
// may write to the workspace after it.
//
// A session waits for these passes, and for those at the ends of turns, so they read two directories at
// the same time. Most of their time is the kernel's, which looks up every entry.
//
// Every change is reported with a number, in the index's lineage. A worker that reports up to which
// number it has stored gets all later changes again. If the index does not continue a worker's
// position, because this is another sandbox or its disk was restored, the worker lists the files
// that it has stored, and a new lineage begins with the difference.
//
// # Invariants
//
//   - No change is lost: the worker stores its number only after it was reported, and a worker with
//     a lower number gets the change again.
//   - Content is sent completely, with the checksum of exactly these bytes, or not at all.
//   - Symbolic links are never followed to open a file.
//   - Files that exist before the first prompt is delivered are never reported as changes.
//
// # Tree
//
// A tree describes every entry of the workspace, including ignored files and .git, by its metadata,
// without reading contents. It is taken when a sandbox is sealed. Its digest is in the manifest;
// its index stays in the state directory, and so in the snapshot, with the checksums of contents in
// the index of changes and those of up to 1,000 other files, the newest, of 16 MiB in total. A
// restore compares the digest, and only if it differs the entries. It reads the content only of
// files that differ just in their modification time. A file that was changed and has the same size
// and time is not noticed. At 100,000 files a comparison takes about 0.6 s, in parallel with the
// runner's start. The bounds are 200,000 entries, a depth of 400 directories, and 10 s.
// The index of a workspace whose digest has not changed is not written again; tree.json names the tree that it belongs to.
//
// # Diff
//
// A diff is taken against the commit that the repository had at the beginning, with git, or against
// copies of the first files. It is taken in a separate process, never in the one that owns the
// agent, which may have no other children.
//
//	failure                          result
//	no inotify, or out of watches    polling
//	inotify misses a change          the periodic passes find it, and polling replaces inotify
//	a file cannot be read            it is listed as unreadable, without content
//	a file changes while it is read  it is read again in the next pass
//	the index file is lost           the worker lists its stored files
//	the index of a tree is lost      only that the workspace differs is reported, if its digest does
//	git fails or takes too long      no diff this time; the previous one remains
package workspace
