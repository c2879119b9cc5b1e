// Package acpformat contains the formats shared by the bridge and the adapter for ACP agents: the
// protocol's messages, the notes of the notebook, and the recorder, which turns the agent's updates
// into blocks. The bridge, which runs in the sandbox, uses the recorder to write the notebook; the
// translator, which runs in a worker, uses it to show streamed text.
package acpformat
