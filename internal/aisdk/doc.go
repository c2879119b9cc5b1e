// Package aisdk shows turns as assistant messages of Vercel's AI SDK: the chunks of its UI message
// stream, version 1, which useChat reads, and the messages that result from these chunks. It is
// pure.
//
//	events of a session ──Encoder──▶ chunks ──▶ SSE, for a turn that runs
//	blocks of a session ──Encoder──▶ chunks ──Assembler──▶ messages, for a page that is opened
//
// One prompt is one user message with the prompt's id, and its turn is one assistant message with the id of replyID, in as many
// runs as it takes.
//
//	block or event                         chunks, and the part that they make
//	-------------------------------------  -------------------------------------------------------------
//	assistant_text                         text-start, text-delta, text-end: text
//	thinking                               reasoning-start, -delta, -end: reasoning
//	tool_use, tool_result                  tool-input-start, tool-input-available, tool-output-available or
//	                                       tool-output-error: dynamic-tool, executed by the provider
//	question                               data-question, updated by the answer; for a permission also
//	                                       tool-approval-request and tool-approval-response
//	subagent, and its conversation         data-subagent: its state and final message
//	system; error                          data-system; data-error
//	user_message of another prompt         data-user-message
//	turn_start, turn_end                   start-step, finish-step, message-metadata
//	metadata_update                        message-metadata
//	prompt with an outcome                 finish, after an abort or an error if it was not completed
//	other events                           transient data parts: data-status, data-queue, data-file, …
//
// # Invariants
//
//   - The chunks depend only on the events, so every stream of a turn that is read from its start
//     has the same ones. A stream always starts with the turn, because useChat rebuilds the message
//     of a stream that it resumes.
//   - A model's answer and the tool calls in it are a step. Within its step any change of a block
//     can be expressed: if the stream has no chunk for it, as for a block that the agent removes,
//     reset-step is followed by the current state of the step. A block of an earlier step that is
//     removed stays in the message, and data-removed names it.
//   - An encoder keeps only the content of the current step.
//   - Every text and every call is closed when the run ends.
package aisdk
