// Package acpclient is shared by the bridges to agents of the Agent Client Protocol: it implements
// the client's side of the protocol, and the loop that serves the runner's prompts with such an
// agent. A bridge embeds [Bridge] and implements [Agent], which defines the content of the notebook
// and the interpretation of the agent's lines. Packages acpbridge and geminibridge are such
// bridges.
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
//   - At most one prompt is being executed, and at most one waits until the agent is ready.
//   - A run recorded in the notebook is not executed again; its end is reported again.
//   - A line is written to the notebook before it is printed.
//
// # When things fail
//
//	failure                             result
//	the agent does not start            the turn of the waiting prompt fails; the bridge exits with ExitFailed
//	the agent exits                     a note reports how, and the bridge exits with ExitDied
//	the agent is silent for too long    the turn is cancelled and fails
//	the agent does not act on a cancel  it is repeated; after cancelGrace the bridge stops the agent
//	stdout is closed                    the bridge stops the agent and exits with ExitFailed
package acpclient
