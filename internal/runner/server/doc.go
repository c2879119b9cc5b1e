// Package server is the runner itself, the sandbox's entry command: it owns the agent and its journals, and serves workers on
// a Unix socket. Package runner describes the protocol.
//
//	attach, abort, … ──▶ connection ─┬─▶ link ─▶ agent's stdin
//	                                 │    ▲ frames of the journal, transcripts, changes of the workspace
//	                                 └─▶ command
//	agent's stdout ─▶ journal ─▶ links, each at its own position
//
// The runner's packages depend on each other in one direction:
//
//	cmd/overwinter-runner ─┬─▶ server ─┬─▶ process   starts and kills the agent's process
//	                       │           ├─▶ follow    reads what the agent changes on the disk ─▶ workspace
//	                       │           └─▶ journal   keeps frames
//	                       └─▶ command               attach, abort, seal, …: other processes ─▶ workspace
//	all ─▶ runner                                    the protocol
//
// server and command know each other by the protocol alone: a sandbox may run a serve of one release and commands of another.
//
// Invariants:
//   - One serve per state directory (flock), one agent process, one live link.
//   - The agent writes to the journal. It waits only for the link of the run that it works on, and at most 20 s for one that
//     takes nothing (pace); its stderr, its end and the worker's messages never wait.
//   - Starting, stopping and sealing happen one at a time (Server.life); an
//     interrupt waits for none of them.
//   - Every descendant of the process belongs to the agent. Nothing else is ever
//     started here, so killing all descendants kills the agent and nothing else.
//   - Only the reaper waits for children. So git runs in attach and seal, which are
//     separate processes: serve sends attach a survey, and attach replaces it with the diff.
//   - The live link alone has the index of the workspace; it is changed under one lock.
//   - Serve waits for every goroutine that it has started.
//
// The state directory holds runner.sock, lock, open (the name of the open run),
// transcripts.json (the newest launch's patterns), runs/ with the journals, and
// workspace/ with the index of the workspace and copies of what was in it first.
//
//	failure                          what follows
//	the runner dies                  the next serve marks the open run cut, or closed if its agent had ended
//	two runners on one directory     the second fails
//	the journal cannot be written    the link ends with journal_failed, the agent is killed
//	a connection does not speak      closed after ten seconds
//	a worker does not read           its link waits, and the agent after its window, for 20 s; the next link displaces it
package server
