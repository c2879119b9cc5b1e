// Package acp is the agent acp: any coding agent that speaks the Agent Client Protocol, version 1
// (JSON-RPC 2.0 over stdio, one message per line). [Adapter] is pure. Package acpbridge is the
// bridge, which starts the agent with the command line of the profile or the installation. Package
// acpformat contains the formats that both use.
//
//	stdin                      requests                           stdout
//	prompt ─┐                ┌─ initialize, session/new|load|resume ─▶       session/update      ─┐
//	abort  ─┼─▶ acp-bridge ──┼─ session/prompt, session/cancel      agent ─▶ request_permission  ├─▶ Translate
//	answer ─┘       │        └─ outcomes of permission           ─▶       responses            ─┘
//	                └─▶ notes, between the agent's own lines ─────────────────────────────────────┘
//	                └─▶ ~/.overwinter/acp/<session>.jsonl, the notes again ────────────────────────▶ Parse
//
// Package acpclient is shared by all bridges to such agents: the agent's process, the handshake,
// responses to its requests, and the interruption and timeout of turns.
//
// # Command line
//
// OVERWINTER_ACP_COMMAND ([EnvCommand]) is taken from the environment of the session's profile, or
// else from the installation's secrets. It is a JSON array of words, or a line for the shell. The
// program must already be in the sandbox: this adapter installs nothing. The agent gets the
// installation's secrets that the profile lists under secrets, as environment variables.
//
// # Blocks
//
//	update of the agent                        block                      block id
//	(the prompt)                               user_message               <run>/prompt
//	agent_message_chunk, agent_thought_chunk   assistant_text, thinking   <run>/<count>
//	tool_call, request_permission              tool_use                   the call's id
//	end of the call                            tool_result                <call>/result
//	plan                                       system plan                <run>/plan
//	error response                             system error               error/<run>/<ms>
//	(conversation that was resent)             system memory_retold       memory_retold/<run>/<ms>
//
// A text block continues until an update of another kind follows or its messageId changes. A tool's
// name is from _meta, else its title if that is one word, else its kind. Its input is rawInput, or
// else the title. Its output is the text in rawOutput, if any, with whatever else the content
// shows; otherwise rawOutput unchanged, or the content: for a changed file, the changed lines.
// Content other than text is shown as a label. Subagents are ordinary tool calls, because the
// protocol has no notion of them. Modes and commands are omitted.
//
// # Memory
//
// The transcript is the bridge's own; the agent's files are the agent's. The agent resumes with
// session/resume or session/load in the same sandbox, and in a new one if
// OVERWINTER_ACP_TRANSCRIPTS ([EnvTranscripts]) names its files. If it cannot, the next prompt
// contains the newest 200 KiB of the earlier conversation, and a system block reports that.
// Instructions of a profile are sent with the first prompt, MCP servers with the session. Skills,
// subagents and commands are not supported.
//
// A run is executed once. If its prompt is delivered again, the bridge repeats the outcome of a
// turn that has ended, reports the outcome of a turn that the agent had begun as unknown, and runs
// a turn that the agent had not begun.
//
// # Stream and transcript
//
// Folding the translated stream gives the blocks that Parse finds, with these exceptions:
//
//   - Text that was streaming when the process was killed is only in the stream; if it is longer
//     than 32 KiB, its last word may be truncated. The stream may lack the input of a call that was
//     running then, if the input is that long.
//   - Lines that the translator does not understand are system blocks of subtype "unparsed", only
//     in the stream.
//   - A stream that was captured without the bridge has no prompts, other ids for text, and no
//     transcript. In it, a session that was loaded repeats its past.
//
// # Permissions
//
// If everything is allowed, the bridge allows every request. Otherwise the core answers, by policy
// or by asking people. The bridge declares that it does not support the client's files and
// terminals, so the agent uses its own.
//
// # When things fail
//
//	failure                           result
//	there is no command line          the process exits with code 2 and prints what to set
//	the agent does not start          the turn fails with the agent's message
//	the model is not available        the turn fails: session/set_model was rejected
//	the model API                     the turn fails with the agent's message
//	no message for 10 minutes         the turn fails; --model-timeout sets the time. Running tools and open
//	                                  questions have no limit
//	the process exits                 open blocks are aborted; the turn fails, reason agent_crashed
//	the runner had to kill it         open blocks are aborted; the turn is cancelled, reason aborted
//	a line is invalid or unknown      a system block contains its beginning; the turn continues
//	the transcript is truncated       complete lines are used
package acp
