// Package process manages the agent's process: how it is started, how input is written to it, and
// how it is interrupted and killed with all its descendants.
//
//	Reaper ── fork on one thread, wait for every child ──▶ process and its descendants
//	Agent  ── Write ─▶ queue of 64 ─▶ stdin
//	       ◀─ FrameFunc ─ lines of stdout and stderr, then one exit frame, then Done
//	PaceFunc waits before each line of stdout, until the process is being stopped or has ended
//
// Invariants:
//   - Write, Interrupt and CallOff never wait for the agent.
//   - The exit frame is the last frame; all descendants are dead by then.
//   - Only the reaper waits for children: a process has one Reaper and starts its children through
//     it.
//   - The environment consists of the launch's and the secrets; only PATH and LANG are inherited
//     from the runner.
//
// When things fail:
//
//	failure                                result
//	the agent does not read its stdin      ErrStuck after 64 writes; an interrupt kills it after its grace
//	the agent ignores an interrupt         its tree is killed after the grace
//	it was killed just before a prompt     the prompt waits for its exit, a second at most, and goes to a new one
//	the agent detaches processes           the runner is their subreaper: they are found and killed
//	a dead agent's pipe is held open       closed two seconds after the process tree has exited
//	a line is longer than the bound        it is truncated and flagged
//	stderr floods                          one MiB, then 256 KiB/s are kept; a note counts the dropped lines
//	descendants outlive SIGKILL            logged after ten seconds; the exit frame follows in any case
package process
