// Package codexformat contains the formats shared by the bridge and the adapter for Codex: the
// messages of its app-server, the lines of its rollouts, the items of both, and the notes and names
// of the bridge. The bridge, in a sandbox, uses them to track which prompts are delivered and which
// requests are pending. The adapter, in a worker, uses them to show events.
package codexformat
