// Package geminiformat is what the two halves of the support of Gemini CLI have in common: the records
// of its chat files, its extensions of the Agent Client Protocol, and the notes and names of the
// bridge. The bridge writes and reads them in a sandbox, the adapter reads them in a worker.
package geminiformat
