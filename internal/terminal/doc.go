// Package terminal shows the events of a session to a person, as the conversation that they are, and
// reads a person's answers to the agent's questions. It is pure: events and typed lines go in, writes
// and answers come out; it knows no transport, no clock and no keyboard.
//
//	events ──▶ View ──▶ lines that stay        what is over
//	                    one line that grows    the text that the agent is saying
//	                    a footer               calls that run, the queue, the prompt to type at
//
// There are two forms. Plain text is only ever appended to: words say what a line is, each line of a
// subagent begins with its name, and a call has a line when it begins to run and one when it is over.
// In a terminal (Options.Rewrite) the rows at the bottom are written again as calls go from pending to
// running to their end, which then stays; signs and margins take the place of words, and lines are
// broken between words. Color alone gives signs and margins, appended to.
//
// # Invariants
//
//   - Whatever a session holds, what is written commands the terminal in no other way than the view
//     itself does: SGR, one cursor movement up or left, erasing to the end of line or screen.
//   - Every event is written in one piece, and text as it comes. Only one text grows at a time; a
//     text of another conversation that begins meanwhile is shown when that one is complete.
//   - A reader may start anywhere in the log. A block whose beginning was missed is shown whole when
//     it is complete, and events of types that this build does not know have a line.
//   - The memory of a view is bounded by the blocks of the running turns, not by the log.
package terminal
