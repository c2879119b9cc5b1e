// Package opencodeformat contains the formats shared by the bridge and the adapter for OpenCode:
// the messages, parts and sessions of its server, the notes of the bridge, the names of files and
// secrets, and the ids of messages. The bridge, in a sandbox, uses them to follow a turn; the
// adapter, in a worker, to show it.
package opencodeformat
