// Package acpclient is what bridges to agents of the Agent Client Protocol share: the client's side of
// the protocol, and the loop that serves the runner's prompts with such an agent. A bridge embeds
// [Bridge] and is the [Agent] of its loop: it says what the notebook records and what the agent's lines
// mean. Packages acpbridge and geminibridge are such bridges.
//
//	runner ── Command ──▶ loop ── prompt, cancel, answer ──▶ agent
//	                       │ ▲◀── updates, questions, end ────
//	                       ▼ │
//	                      Agent: notes in the notebook, blocks, deadlines
//
// # Invariants
//
//   - One goroutine runs the loop and calls the methods of [Agent]; a second one reads the agent's
//     stdout, and requests wait for their response in others. [Bridge.Run] waits for all of them.
//   - At most one prompt is at work and at most one waits until the agent is ready.
//   - A run that the notebook knows is not run again; its end is reported again.
//   - A line of the notebook is written before it is printed.
//
// # When things fail
//
//	what fails                          what follows
//	the agent does not start            the turn of the prompt that waits fails; the bridge exits with ExitFailed
//	the agent dies                      a note says how, and the bridge exits with ExitDied
//	the agent is silent for too long    the turn is cancelled and fails
//	the agent does not act on a cancel  it is repeated; after giveUpGrace the bridge ends the agent
//	stdout is closed                    the bridge ends the agent and exits with ExitFailed
package acpclient
