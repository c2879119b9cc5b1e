// Package stdio is what an adapter and its bridge write to each other. The adapter, which runs in a
// worker, encodes a [Command] for each prompt, answer and interrupt; the bridge, which runs in the
// sandbox, reads it from stdin. The bridge prints the agent's lines unchanged, and its own as a
// [Note], which the adapter's translator recognizes by its only key. What both say about responses of a model server is here too.
package stdio
