// Package execlines reads the lines that codex exec --json prints. It runs one prompt: another, poorer form of
// the stream of the app-server. They are read so that what others have recorded can be. Package codex makes
// blocks of them.
package execlines
