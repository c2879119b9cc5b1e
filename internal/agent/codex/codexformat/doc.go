// Package codexformat is what the two halves of the support of Codex have in common: the messages of
// its app-server, the lines of its rollouts, the items of both, and the notes and names of the
// bridge. The bridge reads them in a sandbox to know what it has delivered and what is pending; the
// adapter reads them in a worker to show them.
package codexformat
