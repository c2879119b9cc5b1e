// Package geminiformat contains the formats shared by the bridge and the adapter for Gemini CLI:
// the records of its chat files, its extensions of the Agent Client Protocol, and the notes and
// names of the bridge. The bridge, in a sandbox, reads and writes them; the adapter, in a worker,
// reads them.
package geminiformat
