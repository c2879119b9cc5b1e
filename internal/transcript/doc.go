// Package transcript has the shapes in which the native transcripts of agents are stored, and the limits of what is
// stored of them.
//
// A transcript is a file that an agent writes in its own format: its memory. It is stored in segments as it grows. A
// file that is rewritten, rather than appended to, gets a new version. How far a file is stored says its [Position],
// by version and size, from which a runner continues to send it. [Limits] bound all of it, because a program in a
// sandbox may write any file.
package transcript
