// Package opencodeformat is what the two halves of the support of OpenCode have in common: the messages,
// parts and sessions of its server, the notes of the bridge, the names of files and secrets, and the
// ids of messages. The bridge, which runs in a sandbox, reads them to follow a turn; the adapter reads
// them in a worker to show it.
package opencodeformat
