// Package opencode is the agent opencode: OpenCode, driven over the HTTP interface of its server.
// [Adapter] is pure. Package opencodebridge is the bridge, which runs in the sandbox, and package
// opencodeformat what both read. The program itself is the pinned npm package of [Adapter.Packages].
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
// port of loopback and lets in only who has its password, which is new each time. The bridge saves
// the session and those of its subagents as files of the form that OpenCode's own export has:
// every second or so while a turn runs, and before it lets the end of the turn out. Where a new sandbox
// has the files and not OpenCode's database, or an older one, the newest session without a parent is
// imported. Sessions of subagents stay files.
//
// A message gets an id that ends with a mark of its run, and begins with the time, because OpenCode
// orders messages by it. A prompt that is delivered again is recognized by that id: a completed
// answer is only reported; an interrupted one is sent once more under the same ids, and OpenCode
// continues it. Prompts that are commands of OpenCode, "/name arguments", run as such; a /compact
// that is delivered twice compacts twice.
//
// A revert to before a prompt truncates the main session before its message, and removes OpenCode's
// database, so that the rest is imported. Files of the workspace are not changed.
//
// OpenCode retries a failing model without limit. The bridge ends such a turn after ten attempts or
// five minutes of them, and records the reason next to the sessions, in failures.json.
//
// # Keys and configuration
//
// Keys of providers come as environment variables out of secrets of the same name, ANTHROPIC_API_KEY,
// OPENAI_API_KEY and so on, as do addresses, ANTHROPIC_BASE_URL, OPENAI_BASE_URL and so on. The secret
// OPENCODE_CONFIG_CONTENT may have configuration in OpenCode's own form, for other providers. The
// bridge makes of all this, and of what Launch says of permissions and the profile, the configuration
// that it hands to the server in its environment. OPENCODE_MODELS_PATH may name a file with the models
// that there are, in place of the long list within OpenCode. OpenCode's own provider is left out where
// there is no key for it, and so are the plugins that it has for logging in. Nothing is fetched: no
// updates, no list of models, no library for plugins. Commands that the agent runs have none of the
// secrets in their environment: their shell takes them out.
//
// # Blocks
//
//	what OpenCode has                        block                      its id
//	text of a user                           user_message               the part's
//	text, reasoning                          assistant_text, thinking   the part's
//	tool                                     tool_use                   the part's
//	tool task                                subagent                   the part's
//	output or error of a tool                tool_result                <part>/result
//	text of a message that is a summary      system compaction          the part's
//	error of a message                       system error               <message>/error
//	failure that the bridge has noted        system error               <message>/error
//	status retry                             system retry               retry/<run>/<number>
//
// A subagent's conversation has the id of its session. A result directly follows its call and is
// opened with it; it is removed if the call is interrupted, and has what was printed if the call is
// aborted. What a tool prints while it runs is shown as updates of the result. A retry is shown
// while it lasts, and removed when it has succeeded. Texts that OpenCode writes in a user's name
// are left out.
//
// # Turns
//
// The bridge decides when a turn ends: when the main session is idle, all answers are stored and
// the files are saved. In a captured stream without a bridge it ends when the main session is idle;
// other activity of the server continues. Its usage is the sum of all steps, those of subagents
// included; input tokens include those read from and written to the cache, output tokens those of
// reasoning.
//
// # Prompts in a running turn
//
// A prompt that the turn is given is posted as a message at once. OpenCode takes it with the next request to the model, after the call that is at
// work or the text that is being written, and answers the newest of those that wait. An answer to a prompt, or to a later one, is the
// proof that it was taken. Until then the bridge holds back the events about its message, so that it is shown before that answer, as in the
// transcript. When the turn is idle, and three seconds later if it was not interrupted, the bridge deletes what was not taken from the
// session, and notes that it is declined. OpenCode refuses a deletion while it works, so that it cannot begin with the prompt
// afterwards. The ids of such messages have a mark: those that a killed process has left are deleted before the next prompt, and Parse
// leaves them out. Commands such as /compact take no prompts.
//
// # Captures
//
// The server's events, raw or after "data:", fold to the blocks of its sessions, as exports, as
// lists of messages, or as requests with their responses, one per line. There may be several
// sessions without a parent: the oldest is the main conversation, and every other one is a separate
// conversation with the id of the session. Files that the bridge has saved have a mark: those
// follow each other in the main conversation, as after a restart without memory. What is deleted or
// reverted is left out; a revert counts when the stream ends, because it may be undone until the
// next prompt.
//
// A prompt that comes while an answer is being written is shown after that answer, as in the transcript.
//
// OpenCode's database itself is not read. The output of opencode run --format json is: it has no
// prompts, and of subagents their calls alone; an error in it has a different id.
//
// # Permissions
//
// If everything is allowed, OpenCode is configured so and has no tool for questions to the user.
// Otherwise it asks, except for tools that only read; it denies by itself what is denied by name.
// It treats all tools that change files as one, edit: if their policies differ it asks, and the
// question has the name of the tool. Rejections always have a message, because OpenCode ends the
// turn on one without. "For the session" and "always" both last as long as the server.
//
// # Stream and transcript
//
// Folding the translated stream gives the blocks that Parse finds: ids, order, content, status,
// time. The exceptions:
//
//   - What the model was writing when the process was killed is in the stream alone; the transcript
//     has an empty block for it, or none.
//   - What was saved less than a second before a kill may be in the stream alone.
//   - Of a text of more than 32 KiB that was interrupted by a kill, the end of the stream is its
//     beginning; the same goes for the input of calls of more than 12 KiB in all, which is missing.
//   - promptId and author are known to the stream alone.
//   - Two prompts that the agent is given before it has taken up the first may stand the other way
//     round in the stream of a capture: there they are in the order in which they were taken up. So may
//     a prompt and what was written while it waited, where the server reports both late.
//   - Of a session that was open before a captured stream began, the stream has what is new.
//   - Lines that the translator does not understand are system blocks of subtype "unparsed" in the
//     stream alone; Parse skips what it does not understand.
//
// # When things fail
//
//	what fails                            what follows
//	the model's server, for good          a system error; the turn failed, in the agent's words
//	the model's server, again and again   retries are shown; given up in the end, the turn failed
//	the server cannot be started          the bridge ends with code 1; the turn failed, agent_crashed
//	the server dies, or its event stream  open blocks aborted; the bridge ends with code 3; agent_crashed
//	the bridge is killed                  the kernel kills the server; open blocks aborted; agent_crashed
//	the runner had to kill it             open blocks aborted; the turn cancelled, reason aborted
//	an event is missed                    the session is found idle by asking; the turn ends
//	the turn ends without a prompt that   the prompt is deleted and declined; it is queued again
//	it was given, or is aborted
//	a prompt is not acknowledged          the agent is asked whether it works; where nothing comes of it
//	                                      for a minute, the server is ended; agent_crashed
//	the server answers no more            after two minutes it is ended; agent_crashed
//	a line is broken or unknown           a system block holds its beginning; the turn continues
//	a file is truncated                   whole messages count; it is not imported, the agent starts without memory
//	the files are gone                    the agent starts again without memory
package opencode
