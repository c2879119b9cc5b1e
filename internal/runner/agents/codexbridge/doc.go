// Package codexbridge connects the runner to Codex's app-server. It runs in the sandbox. It starts the
// app-server, resumes the session's thread, sends prompts and answers, prints every line of the agent,
// and keeps the notebook of what the rollouts do not record. Package codex is its adapter and has the
// whole description.
package codexbridge
