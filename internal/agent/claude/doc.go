// Package claude is the agent claude-sdk: the Claude Code program, driven over stream-json as its
// own SDK drives it. [Adapter] is pure; the program itself is the pinned npm package of [Package].
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
// One process serves the prompts of an awake session. A session's uuid is the one inside its id, so
// its transcript is found by name in any sandbox. A prompt's uuid is made from its run's id: the
// program processes a uuid once, across all processes, so a run may be delivered again. If it had
// started the prompt and died, it only acknowledges it; the translator then asks it to continue
// (Translation.Input), and after eight such requests reports the outcome as unknown.
//
// Secrets come as environment variables: ANTHROPIC_API_KEY, or a token in its place, and
// ANTHROPIC_BASE_URL where the model is served elsewhere.
//
// # Blocks
//
//	what Claude Code has                      block                      its id
//	user line, queued_command attachment      user_message               the line's uuid (source_uuid)
//	text, thinking                            assistant_text, thinking   <message id>/<place in the message>
//	  of a subagent                                                      the line's uuid
//	tool_use                                  tool_use                   the call's id
//	tool_use of Agent or Task                 subagent                   the call's id
//	tool_result                               tool_result                the line's uuid
//	first prompt of a subagent                user_message               <subagent>/prompt
//	compact_boundary and the summary          system compaction          the boundary's uuid
//	api_retry, api_error                      system retry               <block before>/retry/<attempt>
//	message of the API's failure              system error               the line's uuid
//	output of a command such as /cost         system command_output      the line's uuid
//	end of a command in the background        system task                task/<task id>
//	mark of an interrupt                      system interrupted         the line's uuid
//	remark to people, words of a hook         system notice              the line's uuid
//
// A subagent's conversation has the subagent's id. Results of calls follow all parts of the message
// that made them. Images in results are described in the output, and named as the block's images. What the program writes for the
// model alone is left out: reminders, "No response requested.", results that it makes up when a
// session is resumed after a kill, or for a subagent that is stopped; the calls of those are
// aborted. Texts without a word are left out too: the stream does not have them whole.
//
// # Turns
//
// A turn ends when the program is idle and has given a result: subagents in the background keep it
// open and bring their own results. Its usage is the sum of all results, subagents included; input
// tokens include those read from and written to the cache. A command that runs in the background
// does not keep a turn open. What the program prints by itself after a turn has ended is in its
// transcript, not in the stream.
//
// # Stream and transcript
//
// Folding the translated stream gives the blocks that Parse finds: ids, order, content, status,
// time. The exceptions:
//
//   - What the model was writing when the process was killed, with what of that message the program
//     had not noted yet, is in the stream alone. More than 16 KiB of it is not shown whole once more.
//   - Blocks of retries, of tasks, of compactions and of notices have the time of their frame in the
//     stream. So does a block that was never finished.
//   - A prompt that had no answer before the process was killed is read again, and has the time of
//     that in the stream.
//   - promptId and author are known to the stream alone.
//   - /clear begins a conversation under an id of the program's own. It lasts as long as its process,
//     and is in the stream alone where its file is not at hand.
//   - The end of a command in the background is where it ended in the stream, and in the transcript
//     where the model was informed of it, if it was.
//   - Lines that the translator does not understand are system blocks of subtype "unparsed" in the
//     stream alone; Parse skips what it does not understand.
//
// Streams made without the flags that the adapter gives lack more:
//
//   - Without --replay-user-messages there are no prompts, and a retry before anything else has an
//     id without one. With --session-mirror instead, a prompt is where the mirror reported it.
//   - Without --forward-subagent-text there is nothing of what subagents in the foreground say and
//     think, and nothing at all of those that they start.
//   - Without --include-partial-messages the places in ids skip texts without a word.
//
// # When things fail
//
//	what fails                         what follows
//	the model's server                 retries are shown; then the turn failed, in the agent's words
//	the stream of the model            what was written is removed, the next attempt follows
//	the process ends without a result  open blocks aborted; the turn failed, reason agent_crashed
//	the runner had to kill it          open blocks aborted; the turn cancelled, reason aborted
//	a line is broken or unknown        a system block holds its beginning; the turn continues
//	the transcript is truncated        whole lines count
//	the transcript is gone             the agent starts again without memory
package claude
