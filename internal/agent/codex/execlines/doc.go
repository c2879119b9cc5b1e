// Package execlines reads the output of codex exec --json, which runs one prompt. Its lines are a
// reduced form of the app-server's stream. The package exists for recordings of other clients.
// Package codex turns them into blocks.
package execlines
