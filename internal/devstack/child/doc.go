// Package child runs a program as a supervised child process: it is started, probed until it
// responds, restarted when it dies, stopped on demand, and never outlives its parent.
//
//	Supervisor.Start ─▶ starting ──ready──▶ ready ──ends by itself──▶ waiting (200 ms … 10 s) ─┐
//	                      │  ▲                │                                                │
//	                      │  └────────────────┼────────────────────────────────────────────────┘
//	                      │ ends by itself,   │ Stop
//	                      │ first time        ▼
//	                      └──▶ failed       stopping ──ended, or killed at the deadline──▶ stopped
//
// # Invariants
//
//   - Each child leads its own process group, so that a Ctrl-C in the terminal reaches only the
//     supervisor, and processes that a child leaves in its group are killed with it.
//   - The kernel ends a child when the supervisor dies (PR_SET_PDEATHSIG). The signal is tied to
//     the thread that started the child, so one locked thread starts all of them.
//   - RUN_DIR/NAME.json identifies the process of a child. A process counts as a left-over child
//     only if boot, process id, start time and executable all match.
//   - Output of a child on stdout and stderr is written to LOG_DIR/NAME.log before it is shown
//     anywhere else.
//
// # When things fail
//
//	what                                        what happens
//	the program ends before it was ever ready   Start returns an error with its final output; no restart
//	it is killed before it was ever ready       started again, as later
//	it is not ready within Spec.ReadyTimeout    first time: killed, Start returns an error; later: killed, started again
//	it ends by itself once it was ready         started again after a pause that doubles up to 10 s
//	it ignores the request to stop              killed after Spec.StopTimeout
//	the supervisor is killed                    the kernel signals each child; EndLeftovers finds what is left
//
// The package needs Linux: parent-death signals, pidfds and /proc.
package child
