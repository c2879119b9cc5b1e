// Package acpformat is what the two halves of the support of ACP agents have in common: the
// protocol's messages, the notes of the notebook, and the recorder, which makes blocks of what an
// agent reports. The bridge, which runs in a sandbox, records with it what it writes to the notebook;
// the translator, which runs in a worker, shows with it what streams.
package acpformat
