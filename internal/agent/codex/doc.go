// Package codex is the agent codex: OpenAI's Codex, driven over its app-server.
package codex
