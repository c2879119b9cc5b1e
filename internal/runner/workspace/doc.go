// Package workspace tracks the files of an agent's working directory: the present files, the
// changes since the last report to a worker, and the difference from the session's beginning.
//
//	inotify ──▶ Watcher ──wake──▶ (package follow) ──▶ Index.Pass ──▶ Index.Report ──▶ worker
//	polling ───────────────────▶                             │
//	                                                    walk, ignore rules
//
// # What is seen
//
// Regular files below the directory, by their path relative to it. Not seen are symbolic links,
// which nothing here follows, and whatever else is not a file; names that are not UTF-8 or longer than
// workspacefile.MaxPath; everything called .git or in a directory called node_modules; the attachments of
// prompts (workspacefile.AttachmentDir); and, inside a
// repository, what its ignore files name. Of those, .gitignore files and .git/info/exclude count
// with git's own rules: the last match decides, ! negates, a / at the end means directories, one
// before it ties the pattern to the file's directory, ** matches any directories. A file that is
// tracked although a pattern names it is not seen either. workspacefile.MaxWatched files are seen at
// most; which ones a full workspace shows is left open, but those that were seen stay.
//
// # Index
//
// The index has the last report to the worker on each file, and the file's metadata at that time. A
// pass compares it with the disk by size, times and inode, and reads only files that differ. A file
// that was written so shortly before it was read that its time would not show a later write is read
// again in the next pass. It is kept in a form that is read in a few milliseconds at 10,000 files: the first prompt
// after a restore, and every snapshot, waits for it.
//
// Every change is reported with a number, in the index's lineage. A worker that says up to which
// number it has stored gets everything after it again. If the index does not continue a worker's
// position, because the sandbox is another or its disk was restored, the worker says what files it
// knows, and a new lineage begins with the difference.
//
// # Invariants
//
//   - No change is lost: its number exceeds the worker's only once it was reported, and a worker
//     with a lower number gets it again.
//   - Content is sent whole, with the sum of exactly these bytes, or not at all.
//   - Nothing is opened that a symbolic link leads to.
//   - What is there before the first prompt is delivered is never called a change.
//
// # Tree
//
// A tree describes every entry of the workspace, ignored files and .git included, by what the disk says
// without reading it. It is taken when a sandbox is sealed: its digest goes into the manifest, its index
// stays in the state directory, and so in the snapshot, with the sums of contents that the index of
// changes has and those of up to 1,000 other files, the newest, of 16 MiB together. A restore compares the digest, and only if it differs entry by entry. Content is read only
// of a file whose modification time alone differs. A file that was changed and has the same size and
// time is not noticed. At 100,000 files a comparison takes about 0.6 s, alongside the runner's start;
// the bounds are 200,000 entries, 400 directories of depth and 10 s.
//
// # Diff
//
// A diff is against the commit that the repository had at the beginning, by git, or against copies
// of the first files. It is taken in a separate process, never in the one that owns the agent,
// whose children are the agent's alone.
//
//	what fails                       what follows
//	inotify is not there, or full    polling
//	inotify says nothing             the net of polling finds it, and takes over
//	a file cannot be read            it is listed as unreadable, without content
//	a file changes while it is read  it is read again in the next pass
//	the index file is lost           the worker says what it knows
//	the index of a tree is lost      the workspace as a whole is said to differ, if its digest does
//	git fails or takes too long      no diff this time; the one before stays
package workspace
