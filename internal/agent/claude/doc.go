// Package claude is the agent claude-sdk: the Claude Code program, driven over stream-json in the
// same way as its own SDK. [Adapter] is pure; the program itself is the pinned npm package of
// [Package].
//
//	          stdin                                     stdout
//	prompt ─▶ {"type":"user","uuid":…}           ┌────▶ stream_event   what the model writes, in pieces ─┐
//	abort  ─▶ {"type":"control_request",…}    claude ─▶ assistant, user   its parts and results, whole   ├─▶ Translate
//	answer ─▶ {"type":"control_response",…}      │  ├─▶ control_request, system, result, …               ─┘
//	                                             │  └─▶ transcript_mirror   lines of the transcript, later
//	                                             └────▶ ~/.claude/projects/*/<session>.jsonl ──▶ Parse
//	                                                              …/<session>/subagents/agent-<id>.jsonl, .meta.json
//
// # Process and ids
//
// One process serves the prompts of an awake session. A session's uuid is contained in its id, so
// its transcript is found by name in any sandbox. A prompt's uuid is derived from its run's id. The
// program processes a uuid once, across all processes, so a run may be delivered again. If an
// earlier process had started the prompt and died, the program only acknowledges it. The translator
// then asks it to continue (Translation.Input), and after eight such requests reports the outcome
// as unknown.
//
// Secrets are passed as environment variables: ANTHROPIC_API_KEY or a token, and ANTHROPIC_BASE_URL
// if the model API has another address.
//
// # Blocks
//
//	Claude Code                               block                      block id
//	user line, queued_command attachment      user_message               the line's uuid (source_uuid)
//	text, thinking                            assistant_text, thinking   <message id>/<index in the message>
//	  of a subagent                                                      the line's uuid
//	tool_use                                  tool_use                   the call's id
//	tool_use of Agent or Task                 subagent                   the call's id
//	tool_result                               tool_result                the line's uuid
//	first prompt of a subagent                user_message               <subagent>/prompt
//	compact_boundary and the summary          system compaction          the boundary's uuid
//	api_retry, api_error                      system retry               <block before>/retry/<attempt>
//	message of an API failure                 system error               the line's uuid
//	output of a command such as /cost         system command_output      the line's uuid
//	end of a background command               system task                task/<task id>
//	mark of an interrupt                      system interrupted         the line's uuid
//	message for people or of a hook           system notice              the line's uuid
//
// A subagent's conversation has the subagent's id. Results of calls follow all parts of the message
// that made the calls. Images in results are described in the output and listed as the block's
// images. Lines that the program writes only for the model are omitted: reminders, "No response
// requested.", and the results that it makes up when a session is resumed after a kill or when a
// subagent is stopped; the calls of such results are aborted. Texts without a word are omitted too,
// because the stream does not contain them in full.
//
// # Turns
//
// A turn ends when the program is idle and has printed a result. Background subagents keep the turn
// open and have their own results. A turn's usage is the sum of all results, including subagents;
// input tokens include cache reads and writes. A background command does not keep a turn open.
// Output of the program between turns is in its transcript, not in the stream.
//
// # Stream and transcript
//
// Folding the translated stream gives the blocks that Parse finds, with the same ids, order,
// content, status and time, with these exceptions:
//
//   - The part of a message that the program had not recorded when the process was killed is only
//     in the stream. If the message is longer than 16 KiB, it is not shown again in full.
//   - Blocks of retries, tasks, compactions and notices, and blocks that never completed, have the
//     time of their frame in the stream.
//   - A prompt without an answer when the process was killed is read again. In the stream it has
//     the time of the second reading.
//   - promptId and author are only in the stream.
//   - /clear begins a conversation under an id that the program chooses. It lasts until the process
//     exits, and is only in the stream if its file is not available.
//   - In the stream, the end of a background command is shown where the command ended. In the
//     transcript, it is shown where the model was informed of the end, if it was.
//   - Lines that the translator does not understand are system blocks of subtype "unparsed", only
//     in the stream. Parse skips lines that it does not understand.
//
// Streams that were made without the adapter's flags lack more:
//
//   - Without --replay-user-messages there are no prompts, and a retry before any other output has
//     an id without one. With --session-mirror instead, a prompt is shown where the mirror reported
//     it.
//   - Without --forward-subagent-text, text and thinking of foreground subagents are missing, and
//     so is everything from the subagents that they start.
//   - Without --include-partial-messages, the positions in ids skip texts without a word.
//
// # When things fail
//
//	failure                            result
//	the model API                      retries are shown; then the turn fails with the agent's message
//	the stream of the model            partial output is removed, the next attempt follows
//	the process exits without result   open blocks are aborted; the turn fails, reason agent_crashed
//	the runner had to kill it          open blocks are aborted; the turn is cancelled, reason aborted
//	a line is invalid or unknown       a system block contains its beginning; the turn continues
//	the transcript is truncated        complete lines are used
//	the transcript is missing          the agent starts without memory
package claude
