// Package opencode is the agent opencode: OpenCode, driven over the HTTP interface of its server.
// [Adapter] is pure. Package opencodebridge is the bridge, which runs in the sandbox, and package
// opencodeformat contains the formats that both use. The program itself is the pinned npm package
// of [Adapter.Packages].
//
//	        stdin                                      HTTP
//	prompt ─▶ {"type":"prompt",…}                  ┌─▶ POST …/prompt_async, …/command, …/summarize
//	abort  ─▶ {"type":"interrupt",…} ──▶ bridge ───┼─▶ POST …/abort                         opencode
//	answer ─▶ {"type":"answer",…}          │ ▲     ├─▶ POST /permission/…, /question/…         serve
//	                                       │ │     └─▶ GET  /session/…, …/message                │
//	                              stdout   │ └──────── GET  /event, a stream ◀───────────────────┘
//	Translate ◀── events, as they came ────┤
//	          ◀── {"overwinter":{…}} ──────┤
//	Parse     ◀── <session>.json, each session's export, whenever something has changed
//
// # Process and ids
//
// One bridge, with one server, serves the prompts of an awake session. The server listens on a free
// port of the loopback interface and requires a password, which is new each time. The bridge saves
// the session and those of its subagents as files in the format of OpenCode's own export: about
// every second during a turn, and before it prints the end of the turn. If a new sandbox has the
// files, but not OpenCode's database or only an older one, the newest session without a parent is
// imported. Sessions of subagents remain files.
//
// The id of a message begins with the time, by which OpenCode orders messages, and ends with a mark
// of its run. It identifies a prompt that is delivered again: the outcome of a completed answer is
// only reported; an interrupted one is sent again under the same ids, and OpenCode continues it.
// Prompts that are commands of OpenCode, "/name arguments", are executed as commands; a /compact
// that is delivered twice compacts twice.
//
// A revert to before a prompt truncates the main session before its message, and deletes OpenCode's
// database, so that the rest is imported. Files of the workspace are not changed.
//
// OpenCode retries a failing model without limit. The bridge aborts such a turn after ten attempts
// or five minutes of failures, and records the reason next to the sessions, in failures.json.
//
// # Keys and configuration
//
// Keys of providers are passed as environment variables from secrets of the same name, such as
// ANTHROPIC_API_KEY and OPENAI_API_KEY, and so are addresses, such as ANTHROPIC_BASE_URL and
// OPENAI_BASE_URL. The secret OPENCODE_CONFIG_CONTENT may contain configuration in OpenCode's own
// format, for other providers. From these, and from the permissions and the profile in Launch, the
// bridge generates the configuration that it passes to the server in its environment.
// OPENCODE_MODELS_PATH may name a file with the available models, which replaces OpenCode's long
// built-in list. OpenCode's own provider is disabled if there is no key for it, and so are its
// plugins for logging in. Nothing is downloaded: no updates, no list of models, no plugin library.
// Commands that the agent runs have none of the secrets in their environment, because their shell
// removes them.
//
// # Blocks
//
//	OpenCode                                 block                      block id
//	text of a user                           user_message               the part's
//	text, reasoning                          assistant_text, thinking   the part's
//	tool                                     tool_use                   the part's
//	tool task                                subagent                   the part's
//	output or error of a tool                tool_result                <part>/result
//	text of a message that is a summary      system compaction          the part's
//	error of a message                       system error               <message>/error
//	failure recorded by the bridge           system error               <message>/error
//	status retry                             system retry               retry/<run>/<number>
//
// A subagent's conversation has the id of its session. A result directly follows its call and is
// opened with it. It is removed if the call is interrupted, and has the output so far if the call
// is aborted. Output of a running tool is shown as updates of the result. A retry is shown while it
// lasts, and removed when it has succeeded. Texts that OpenCode writes in the user's name are
// omitted.
//
// # Turns
//
// The bridge determines when a turn ends: when the main session is idle, all answers are stored and
// the files are saved. In a captured stream without a bridge, it ends when the main session is
// idle; other activity of the server continues. The usage of a turn is the sum of all steps,
// including subagents; input tokens include cache reads and writes, output tokens include
// reasoning.
//
// # Prompts in a running turn
//
// A prompt that is added to a turn is posted as a message at once. OpenCode accepts it with the
// next request to the model, after the running call or the current text, and answers the newest of
// the waiting prompts. An answer to a prompt, or to a later one, proves that it was accepted. Until
// then the bridge holds the events about its message, so that it is shown before that answer, as in
// the transcript. When the turn is idle, or three seconds later if it was not interrupted, the
// bridge deletes from the session the prompts that were not accepted, and notes that they are
// declined. OpenCode refuses a deletion while it is busy, so it cannot start on the prompt
// afterwards. The ids of such messages have a mark: those that a killed process has left are
// deleted before the next prompt, and Parse skips them. Commands such as /compact accept no
// prompts.
//
// # Captures
//
// The server's events, raw or after "data:", fold to the blocks of its sessions, which are read
// from exports, from lists of messages, or from requests with their responses, one per line. There
// may be several sessions without a parent: the oldest is the main conversation, and every other
// one is a separate conversation with the id of the session. Files that the bridge has saved have a
// mark: they follow each other in the main conversation, as after a restart without memory. Deleted
// and reverted messages are omitted; a revert takes effect when the stream ends, because it may be
// undone until the next prompt.
//
// A prompt that arrives during an answer is shown after that answer, as in the transcript.
//
// OpenCode's database itself is not read. The output of opencode run --format json is supported: it
// has no prompts and only the calls of subagents, and an error in it has a different id.
//
// # Permissions
//
// If everything is allowed, OpenCode is configured accordingly and has no tool for questions to the
// user. Otherwise it asks, except for tools that only read; it rejects tools that are denied by
// name. It treats all tools that change files as one, edit: if their policies differ, it asks, and
// the question has the name of the tool. Rejections always have a message, because OpenCode ends
// the turn on one without. "For the session" and "always" both last until the server exits.
//
// # Stream and transcript
//
// Folding the translated stream gives the blocks that Parse finds, with the same ids, order,
// content, status and time. The exceptions:
//
//   - Output that the model was writing when the process was killed is only in the stream; the
//     transcript has an empty block for it, or none.
//   - Changes in the last second before a kill may be only in the stream.
//   - If a kill interrupts a text of more than 32 KiB, the block ends with only its beginning.
//     Likewise, the input of calls is missing if it exceeds 12 KiB in total.
//   - promptId and author are only in the stream.
//   - Two prompts that were sent before the agent started on the first may be in reverse order in
//     the stream of a capture, which has them in the order in which the agent started on them. The
//     same applies to a prompt and the output while it waited, if the server reports both late.
//   - For a session that existed before a captured stream began, the stream contains only new
//     messages.
//   - Lines that the translator does not understand are system blocks of subtype "unparsed", only
//     in the stream. Parse skips lines that it does not understand.
//
// # When things fail
//
//	failure                               result
//	the model API, permanently            a system error; the turn fails with the agent's message
//	the model API, repeatedly             retries are shown; the turn fails at the retry limit
//	the server cannot be started          the bridge exits with code 1; the turn fails, agent_crashed
//	the server or its event stream ends   open blocks are aborted; the bridge exits with code 3; agent_crashed
//	the bridge is killed                  the kernel kills the server; open blocks are aborted; agent_crashed
//	the runner had to kill it             open blocks are aborted; the turn is cancelled, reason aborted
//	an event is missed                    the bridge finds the session idle by asking; the turn ends
//	the turn ends without accepting a     the prompt is deleted and declined; it is queued again
//	prompt, or is aborted
//	a prompt is not acknowledged          the agent is asked whether it is busy; if it stays idle
//	                                      for a minute, the server is killed; agent_crashed
//	the server no longer responds         after two minutes it is killed; agent_crashed
//	a line is invalid or unknown          a system block contains its beginning; the turn continues
//	a file is truncated                   complete messages are used; it is not imported, the agent starts without memory
//	the files are missing                 the agent starts without memory
package opencode
