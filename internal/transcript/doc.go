// Package transcript defines the form in which the native transcripts of agents are stored, and the
// limits on them.
//
// A transcript is a file that an agent writes in its own format: its memory. It is stored in
// segments as it grows. A file that is rewritten, rather than appended to, gets a new version. The
// [Position] of a file, a version and a size, is how much of it is stored, and where a runner
// continues to send it. [Limits] bound all of this, because a program in a sandbox may write any
// file.
package transcript
