// Package terminal renders the events of a session as a conversation, and parses a user's answers
// to the agent's questions. It is pure: its input is events and typed lines, its output is writes
// and answers; it uses no transport, clock or keyboard.
//
//	events ──▶ View ──▶ lines that stay        what is over
//	                    one line that grows    the text that the agent is saying
//	                    a footer               calls that run, the queue, the prompt to type at
//
// There are two forms. Plain text is append-only: words describe each line, each line of a subagent
// begins with its name, and a call has a line at its start and one at its end. In a terminal
// (Options.Rewrite) the rows at the bottom are rewritten while calls are pending or running, and
// the final row stays; signs and margins replace words, and lines are wrapped between words. Color
// without Rewrite is append-only with signs and margins.
//
// # Invariants
//
//   - Whatever a session contains, the output has no terminal commands except the view's own: SGR,
//     one cursor movement up or left, erasing to the end of line or screen.
//   - Every event is written in one piece, and text as it arrives. Only one text grows at a time; a
//     text of another conversation that begins in the meantime is shown when the first one is
//     complete.
//   - A reader may start anywhere in the log. A block whose beginning was missed is shown whole
//     when it is complete, and an event of an unknown type is shown as a line.
//   - The memory of a view is bounded by the blocks of the running turns, not by the log.
package terminal
