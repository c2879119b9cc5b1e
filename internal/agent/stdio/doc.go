// Package stdio defines the lines that an adapter and its bridge exchange. The adapter, which runs
// in a worker, encodes a [Command] for each prompt, answer and interrupt; the bridge, which runs in
// the sandbox, reads it from stdin. The bridge prints the agent's lines unchanged, and its own as a
// [Note], which the adapter's translator recognizes by its only key. The package also interprets
// responses of a model API for both.
package stdio
