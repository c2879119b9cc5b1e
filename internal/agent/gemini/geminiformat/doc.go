// Package geminiformat contains what the bridge and the adapter for Gemini CLI share: the records
// of its chat files, its extensions of the Agent Client Protocol, and the notes and names of the
// bridge. The bridge, in a sandbox, reads and writes them; the adapter, in a worker, reads them.
package geminiformat
