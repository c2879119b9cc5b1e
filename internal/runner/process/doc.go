// Package process is the agent's process: how it is started, fed, interrupted and killed with everything that it has started.
//
//	Reaper ── fork on one thread, wait for every child ──▶ process and its descendants
//	Agent  ── Write ─▶ queue of 64 ─▶ stdin
//	       ◀─ FrameFunc ─ lines of stdout and stderr, then one exit frame, then Done
//	PaceFunc waits before each line of stdout, until the process is being stopped or has ended
//
// Invariants:
//   - Write, Interrupt and CallOff never wait for the agent.
//   - The exit frame is the last frame; all descendants are dead by then.
//   - Nothing but the reaper waits for children: a process has one Reaper and starts its children through it.
//   - The environment is the launch's and the secrets; nothing of the runner's is inherited but PATH and LANG.
//
// When things fail:
//
//	failure                                what follows
//	the agent does not read its stdin      ErrStuck after 64 writes; an interrupt kills it after its grace
//	the agent ignores an interrupt         its tree is killed after the grace
//	the agent detaches processes           the runner is their subreaper: they are found and killed
//	a dead agent's pipe is held open       closed two seconds after the tree is gone
//	a line is longer than the bound        its beginning is kept, marked as truncated
//	stderr floods                          one MiB, then 256 KiB/s are kept; a note counts the lines left out
//	descendants outlive SIGKILL            logged after ten seconds; the exit frame follows in any case
package process
