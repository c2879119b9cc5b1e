// Package acp is the agent acp: any coding agent that speaks the Agent Client Protocol, version 1
// (JSON-RPC 2.0, a message a line, over its stdio). [Adapter] is pure. Package acpbridge is the bridge,
// which starts the agent by the command line that the installation or a profile has for it; package
// acpformat is what both read.
//
//	stdin                      requests                           stdout
//	prompt ─┐                ┌─ initialize, session/new|load|resume ─▶       session/update      ─┐
//	abort  ─┼─▶ acp-bridge ──┼─ session/prompt, session/cancel      agent ─▶ request_permission  ├─▶ Translate
//	answer ─┘       │        └─ outcomes of permission           ─▶       responses            ─┘
//	                └─▶ notes, between the agent's own lines ─────────────────────────────────────┘
//	                └─▶ ~/.overwinter/acp/<session>.jsonl, the notes again ────────────────────────▶ Parse
//
// The bridge's Client is what every bridge to such an agent shares: the agent's process, the handshake,
// responses to its requests, and how a turn is aborted or given up.
//
// # Command line
//
// OVERWINTER_ACP_COMMAND ([EnvCommand]) is looked for in the environment of the session's profile and
// among the installation's secrets, the profile first. It is a JSON array of words, or a line for the
// shell. The program itself has to be in the sandbox: this adapter installs nothing. Of the
// installation's secrets it gets those that the profile names under secrets, as variables.
//
// # Blocks
//
//	what the agent says                        block                      its id
//	(the prompt)                               user_message               <run>/prompt
//	agent_message_chunk, agent_thought_chunk   assistant_text, thinking   <run>/<count>
//	tool_call, request_permission              tool_use                   the call's id
//	its end                                    tool_result                <call>/result
//	plan                                       system plan                <run>/plan
//	an error in place of an answer             system error               error/<run>/<ms>
//	(memory that was sent again)               system memory_retold       memory_retold/<run>/<ms>
//
// A text continues until something else follows, or its messageId changes. A tool's name is from
// _meta, else its title if that is one word, else its kind; its input is rawInput, or the title.
// Its output is the text in rawOutput, if any, with what else the content shows; otherwise
// rawOutput unchanged, or what the content shows: of a changed file, the changed lines. Content
// other than text is named. Subagents are calls like any other: the protocol has no notion of them.
// Modes and commands are left out.
//
// # Memory
//
// The transcript is the bridge's own; agents' files are theirs. In the same sandbox, and in a new
// one if OVERWINTER_ACP_TRANSCRIPTS ([EnvTranscripts]) names those files, the agent resumes by
// session/resume or session/load. If it cannot, the next prompt carries the earlier conversation,
// the newest 200 KiB of it, and a system block says so. Instructions of a profile are sent with the
// first prompt, MCP servers with the session; skills, subagents and commands are not supported.
//
// A run is done once: a prompt that is delivered again after its turn has ended is answered with its
// outcome, one that the agent had begun with is unknown, and one that it had not is done.
//
// # Stream and transcript
//
// Folding the translated stream gives the blocks that Parse finds. The exceptions:
//
//   - Text that was streaming when the process was killed is in the stream alone; of more than 32 KiB
//     its last word may be the beginning. Of a call that was at work then, the input may be missing in
//     the stream where it is as long.
//   - Lines that the translator does not understand are system blocks of subtype "unparsed" in the
//     stream alone.
//   - A stream that was captured without the bridge has no prompts, other ids of text, and no
//     transcript. A session that was loaded repeats its past in it.
//
// # Permissions
//
// Where everything is allowed, the bridge says so to whatever is asked. Else the core answers, by
// policy or by people. Files and terminals of the client are declared to be unsupported: the agent
// uses its own.
//
// # When things fail
//
//	what fails                        what follows
//	there is no command line          the process ends with code 2, and says what to set
//	the agent does not start          the turn failed, in the agent's words
//	the model is not available        the turn failed: session/set_model was refused
//	the model's server                the turn failed, in the agent's words
//	nothing is said for 10 minutes    the turn is given up as failed; --model-timeout sets the time. Tools at
//	                                  work and questions that wait take as long as they take
//	the process ends                  open blocks aborted; the turn failed, reason agent_crashed
//	the runner had to kill it         open blocks aborted; the turn cancelled, reason aborted
//	a line is broken or unknown       a system block holds its beginning; the turn continues
//	the transcript is truncated       whole lines count
package acp
