// Package gemini is the agent gemini-cli: Google's Gemini CLI, driven over the Agent Client
// Protocol for streamed output. Its own chat files provide the data that the protocol lacks: the
// names, arguments and results of calls, and all output of subagents. [Adapter] is pure. Package
// geminibridge is the bridge, and package geminiformat contains the formats that both use. The
// program itself is the pinned npm package of [Adapter.Packages] and runs with Node 20 or newer.
//
//	stdin                        ACP                                stdout
//	prompt ─┐                  ┌─ session/load|new, prompt ─▶      session/update, …  ─┐
//	abort  ─┼─▶ gemini-bridge ─┼─ session/cancel           gemini                      ├─▶ Translate
//	answer ─┘     ▲    │       └─ outcomes of permission ─▶  │                         │
//	              │    └─▶ notes, between the program's own lines ─────────────────────┘
//	              │    └─▶ ~/.gemini/overwinter/<session>.jsonl, the notes again ──────────▶ Parse
//	              └────────── new lines ── ~/.gemini/tmp/overwinter/chats/session-*.jsonl ◀─┘
//	                                       …/chats/<session>/<subagent>.jsonl
//
// # The notebook
//
// The transcript of a session is the bridge's notebook, which is append-only. It contains the new
// records of the chat files, and notes of the data that they lack: prompts with their ids, calls
// that have begun, aborted answers, ends of turns. Every line is written to the notebook before it
// is printed, so the transcript is complete when the turn ends. A record is held until everything
// that it refers to has been printed, because the program's stdout may be read later than its
// files.
//
// The program's own chat file is not a reliable transcript: session/load creates a second file for
// the same session, the next start deletes the first, and the session is lost. Therefore, at each
// start, the bridge removes all chats and writes one file from the notebook, with a name older than
// any other. The program loads that file and appends to it. In that file every call appears once,
// after the answer that made it. The program itself keeps the calls of a session in one record, and
// sends each result to the model twice.
//
// # Process and ids
//
// One process serves the prompts of an awake session. A run is executed once, as recorded in the
// notebook. If a run is delivered again and its turn has ended, the bridge reports its outcome. If
// the program had started it before it died, its outcome is unknown (already_delivered), because
// the program stores no id to resume by. Otherwise it is executed.
//
// # Blocks
//
//	output                                 block                      block id
//	the prompt                             user_message               <run>/prompt
//	thoughts, content of an answer         thinking, assistant_text   <run>/<count>/thinking/<index>, …/text
//	  of a subagent                                                   <record>/thinking/<index>, …/text
//	first prompt of a subagent             user_message               the record's id
//	tool_call, toolCalls                   tool_use                   the call's id
//	  of invoke_agent                      subagent                   the call's id
//	result of a call                       tool_result                <call>/result
//	error response                         system error               error/<run>/<ms>
//	summary that replaces the past         system compaction          the summary's id
//	message to itself as the user          system reminder            the record's id
//	a session that could not be loaded     system memory_lost         memory_lost/<run>/<ms>
//
// A subagent's conversation has the subagent's id. The id of a call begins with the name of its
// tool. The input of a call is known when the call has ended; until then, and for a call that was
// never allowed, its title is shown instead. The program reports commands that fail as calls that
// succeed. Text that it sends to the model by itself (session_context, hook_context) is omitted. A
// prompt that begins with a slash and names a command of the user or the workspace is sent as that
// command's prompt, because over ACP the program knows only its built-in commands.
//
// Chat files of the program itself, without a notebook, are parsed as logs: messages remain
// although the program has dropped them, except those that a rewind removes. Text and prompts then
// have the ids of their records.
//
// # Stream and transcript
//
// Folding the stream of the bridge gives the blocks that Parse finds in its notebook. The exceptions:
//
//   - Text that was streaming when the process was killed is only in the stream; if it is longer
//     than 32 KiB, its last word may be truncated.
//   - Lines that the translator does not understand are system blocks of subtype "unparsed", only
//     in the stream.
//
// Streams without the bridge are translated as completely as possible. ACP streams have no prompts,
// no arguments, no subagents, and only those results that are shown to people. Streams of
// --output-format stream-json have no thoughts either, and neither has ids of text, prompts, or the
// times of records. In common with chat files, they have answers, calls with their ids, names and
// statuses, and their order. The exceptions:
//
//   - Output that was aborted by a kill, an abort or the program's loop detection is only in the
//     stream: answers, running calls, and prompts without an answer.
//   - Errors, and answers of the program itself, such as to /help, are only in the stream.
//   - Errors and warnings that were shown in a terminal, and calls of unknown tools over ACP, are
//     only in the chat.
//   - A rejected call is aborted and has no result in an ACP stream. In the chat its result is an
//     error.
//   - Comments (<!-- -->), zero-width characters and text that is only white space are missing in
//     the chat.
//   - A session that was loaded repeats its past in the stream. If several sessions take turns in
//     one stream, it has everything in the order of arrival; their chats follow each other.
//
// # Permissions
//
// If everything is allowed, the program is started so that it never asks (yolo). If it asks
// nevertheless, as in a session that it has loaded, the bridge allows the request. Otherwise the
// core answers, by policy or by asking people, and the program remembers answers for the session.
// Tools that are denied by name are not offered. Over ACP the program asks no other questions. If
// it asks for permissions, it rejects every subagent ("denied by policy"), because over ACP it
// cannot ask on behalf of one.
//
// # Profiles
//
// Instructions are ~/.gemini/GEMINI.md, skills, subagents and commands are below ~/.gemini, MCP
// servers in its settings, which the bridge writes over the user's. The model is always named,
// because the program would otherwise ask a model which one to use. Secrets are passed as
// environment variables.
//
// # When things fail
//
//	failure                           result
//	the program does not start        the turn fails with its message
//	the model API refuses             the turn fails with the program's message
//	the model API always fails        the program retries silently; after 5 minutes without
//	                                  a message the turn fails (--model-timeout; six
//	                                  times that while a subagent runs). Running tools and open
//	                                  questions have no limit
//	the turn is aborted               its text is recorded as aborted; the program forgets the prompt
//	the session cannot be loaded      a new one is started, and a system block reports the lost memory
//	the process exits                 open blocks are aborted; the turn fails, reason agent_crashed
//	the runner had to kill it         open blocks are aborted; the turn is cancelled, reason aborted
//	a line is invalid or unknown      a system block contains its beginning; the turn continues
//	the notebook is truncated         complete lines are used
//	the notebook is missing           the program starts without memory
package gemini
