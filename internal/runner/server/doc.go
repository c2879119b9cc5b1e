// Package server is the runner itself, the sandbox's entry command. It owns the agent and its
// journals, and serves workers on a Unix socket. Package runner describes the protocol.
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
// server and command share only the protocol, because a sandbox may run a serve of one release and
// commands of another.
//
// Invariants:
//   - One serve per state directory (flock), one agent process, one live link.
//   - The agent writes to the journal. It waits only for the link of its run, and for at most 20 s
//     if that link takes nothing (pace); its stderr, its exit and the worker's messages are never
//     delayed.
//   - Starting, stopping and sealing happen one at a time (Server.life); an interrupt does not wait
//     for them.
//   - Every descendant of the process belongs to the agent, because it starts nothing else. So
//     killing all descendants kills exactly the agent.
//   - Only the reaper waits for children. Therefore git runs in attach and seal, which are separate
//     processes: serve sends attach a survey, and attach replaces it by the diff.
//   - Only the live link uses the index of the workspace, which is changed under one lock.
//   - Serve waits for every goroutine that it has started.
//
// The state directory holds runner.sock, lock, open (the name of the open run, padded), transcripts.json
// (the newest launch's patterns), runs/ with the journals and the ledger, and workspace/ with the index of the
// workspace and copies of its first files.
//
//	failure                          result
//	the runner dies                  the next serve marks the open run cut, or closed if its agent had exited
//	two runners on one directory     the second fails
//	the journal cannot be written    the link ends with journal_failed, the agent is killed
//	a connection sends nothing       closed after ten seconds
//	a worker does not read           its link waits, and the agent after its window, for 20 s; the next link displaces it
package server
