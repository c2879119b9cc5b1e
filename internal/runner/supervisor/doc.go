// Package supervisor is the runner's end of package runner's protocol: serve,
// which owns the agent and its journals, and the commands that talk to it.
//
//	attach, abort, … ──▶ connection ─┬─▶ link ─▶ agent.stdin
//	                                 │    ▲ frames of journal, transcripts
//	                                 └─▶ command
//	agent.stdout ─▶ journal ─▶ (readers: links)
//	workspace ─▶ index ─▶ link
//
// Invariants:
//   - One serve per state directory (flock), one agent process, one live link.
//   - The journal is written by the agent's pumps and waits for no link.
//   - Starting, stopping and sealing happen one at a time (Supervisor.life); an
//     interrupt waits for none of them.
//   - Every descendant of the process belongs to the agent. Nothing else is ever
//     started here, so killing all descendants kills the agent and nothing else.
//   - Only the reaper waits for children. So what needs git runs in attach and seal, which are
//     separate processes: serve sends attach a survey, and attach replaces it with the diff.
//   - The live link alone has the index of the workspace; it is changed under one lock.
//
// The state directory holds runner.sock, lock, open (the name of the open run),
// transcripts.json (the newest launch's patterns), runs/ with the journals, and
// workspace/ with the index of the workspace and copies of what was in it first.
package supervisor
