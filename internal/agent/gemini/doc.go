// Package gemini is the agent gemini-cli: Google's Gemini CLI, driven over the Agent Client Protocol
// for what streams, with its own chat files for what they alone know: the names, arguments and
// results of calls, and everything that subagents do. [Adapter] is pure; package geminibridge is the
// bridge, and package geminiformat what both read. The program itself is the pinned npm package of
// [Adapter.Packages], which Node 20 or newer runs.
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
// The transcript of a session is the bridge's notebook, which only grows: new records of the chat
// files, and notes of what they lack (prompts with their ids, calls that have begun, aborted
// answers, ends of turns). Every line is in the notebook before it is printed, so the transcript is
// complete when the turn ends. A record is held back until everything that it refers to has been
// printed: the program's stdout may be read later than its files.
//
// Its own chat file is not a reliable transcript: session/load creates a second file for the same
// session, the next start deletes the first, and the session is gone. So at each start the bridge
// removes all chats and writes one file from the notebook, under a name that is older than any,
// which the program then loads and appends to. In that file every call is present once, after the
// answer that made it; the program itself keeps the calls of a session in one record, and sends the
// model each result twice.
//
// # Process and ids
//
// One process serves the prompts of an awake session. A run executes once: the notebook has it. If a
// run is delivered again, its outcome is reported if its turn has ended; it is unknown
// (already_delivered) if the program had started it before it died, because the program stores no
// id to resume by; otherwise it executes.
//
// # Blocks
//
//	what                                   block                      its id
//	the prompt                             user_message               <run>/prompt
//	thoughts, content of an answer         thinking, assistant_text   <run>/<count>/thinking/<place>, …/text
//	  of a subagent                                                   <record>/thinking/<place>, …/text
//	first prompt of a subagent             user_message               the record's id
//	tool_call, toolCalls                   tool_use                   the call's id
//	  of invoke_agent                      subagent                   the call's id
//	its result                             tool_result                <call>/result
//	an error in place of an answer         system error               error/<run>/<ms>
//	a summary in place of the past         system compaction          the summary's id
//	what it sends itself as the user       system reminder            the record's id
//	a session that could not be loaded     system memory_lost         memory_lost/<run>/<ms>
//
// A subagent's conversation has the subagent's id. The id of a call begins with the name of its
// tool. The input of a call is known when the call has ended; before that, and for a call that was
// never allowed, its title takes the place. The program reports commands that fail as calls that
// succeed. What it sends the model by itself (session_context, hook_context) is left out. A prompt
// that begins with a slash and names a command of the user or the workspace is sent as that
// command's prompt: over ACP the program knows only its built-in commands.
//
// Chat files of the program itself, without a notebook, parse as well: as logs, in which messages
// stay although the program has forgotten them, except those that a rewind removes. There text and
// prompts have the ids of their records.
//
// # Stream and transcript
//
// Folding the stream of the bridge gives the blocks that Parse finds in its notebook. The exceptions:
//
//   - Text that was streaming when the process was killed is in the stream alone; of more than 32 KiB
//     its last word may be the beginning.
//   - Lines that the translator does not understand are system blocks of subtype "unparsed" in the
//     stream alone.
//
// Streams without the bridge translate as far as they go. Those of ACP have no prompts, no arguments,
// no results but what a person would be shown, and no subagents; those of --output-format stream-json
// have no thoughts either, and neither has ids of text, prompts or the times of records. What they
// have in common with chat files are answers, calls with their ids, names and states, and their order.
// Between these, too, there are exceptions:
//
//   - What was aborted, by a kill, an abort or because the program goes in circles, is in the stream
//     alone: answers, calls at work, and prompts to which there is no answer.
//   - So are errors, and what the program answers by itself, such as /help.
//   - Errors and warnings that were shown in a terminal are in the chat alone, and over ACP calls
//     of
//     tools that there are not.
//   - A call that was refused is aborted, without a result, in a stream of ACP; the chat has an error.
//   - Comments (<!-- -->) and characters without a width are left out of what is written down, as is
//     text that is all space.
//   - A session that was loaded repeats its past in the stream. Of several sessions that take turns in
//     one stream all is in the order in which it came; their chats follow each other.
//
// # Permissions
//
// If everything is allowed, the program is started to ask nothing (yolo), and the bridge allows
// what it asks nevertheless, as in a session that it has loaded. Otherwise the core answers, by
// policy or from people; the program stores an answer for the session. Tools that are denied by
// name are not offered. It asks its user nothing else over ACP. If it asks, it refuses its model
// every subagent ("denied by policy"), because over ACP it cannot ask in the name of one.
//
// # Profiles
//
// Instructions are ~/.gemini/GEMINI.md, skills, subagents and commands are below ~/.gemini, MCP
// servers in its settings, which the bridge writes over the user's. The model is always named:
// without a name, the program asks a model which one to use. Secrets come as environment variables.
//
// # When things fail
//
//	what fails                        what follows
//	the program does not start        the turn failed, in its words
//	the model's server refuses        the turn failed, in the program's words
//	the model's server always fails   the program retries silently; after 5 minutes in which
//	                                  nothing arrived the turn is ended as failed (--model-timeout; six
//	                                  times that while a subagent works). Tools at work and questions
//	                                  that wait take as long as they take
//	the turn is aborted               what was said is noted as aborted; the program forgets the prompt
//	the session cannot be loaded      a new one is started, and a system block says that memory is lost
//	the process ends                  open blocks aborted; the turn failed, reason agent_crashed
//	the runner had to kill it         open blocks aborted; the turn cancelled, reason aborted
//	a line is broken or unknown       a system block holds its beginning; the turn continues
//	the notebook is truncated          whole lines count
//	the notebook is gone               the program starts again without memory
package gemini
