// Package codexbridge connects the runner to Codex's app-server. It runs in the sandbox. It starts
// the app-server, resumes the session's thread, sends prompts and answers, prints every line of the
// agent, and records in the notebook the information that the rollouts lack. Its adapter, package
// codex, documents both.
package codexbridge
