// Package supervisor is the runner's end of package runner's protocol: serve,
// which owns the agent and its journals, and the commands that talk to it.
//
//	attach, abort, … ──▶ connection ─┬─▶ link ─▶ agent.stdin
//	                                 │    ▲ frames of journal, transcripts
//	                                 └─▶ command
//	agent.stdout ─▶ journal ─▶ (readers: links)
//
// Invariants:
//   - One serve per state directory (flock), one agent process, one live link.
//   - The journal is written by the agent's pumps and waits for no link.
//   - Starting, stopping and sealing happen one at a time (Supervisor.life); an
//     interrupt waits for none of them.
//   - Every descendant of the process belongs to the agent. Nothing else is ever
//     started here, so killing all descendants kills the agent and nothing else.
//   - The reaper is the only one who waits for children.
//
// The state directory holds runner.sock, lock, open (the name of the open run),
// transcripts.json (the newest launch's patterns) and runs/ with the journals.
package supervisor
