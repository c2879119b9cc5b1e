// Package codex is the agent codex: OpenAI's Codex, driven over its app-server as its own editors
// drive it. [Adapter] is pure. Package codexbridge is the bridge between the runner, which exchanges
// lines only, and codex app-server, which speaks JSON-RPC; package codexformat is what both read. The
// program itself is the pinned npm package of [Adapter.Packages]; it needs nothing else, not even Node.
//
//	         stdin                     JSON-RPC
//	prompt ─▶         ─ thread/start ──▶           ┌▶ ~/.codex/sessions/*/*/*/rollout-*-<thread>.jsonl ─┐
//	answer ─▶  bridge ─ turn/start ────▶  codex  ──┤                                                   ├─▶ Parse
//	abort  ─▶    │    ─ turn/interrupt ▶ app-server│  ~/.codex/overwinter/<session>.jsonl  (notebook) ──┘
//	             │    ◀─ item/started, …           │           ▲
//	             │    ◀─ requestApproval, …        │           │
//	             ├─────────────────────────────────┼───────────┘
//	             └▶ every line of the agent unchanged, and notes {"overwinter":{…}} ──▶ Translate
//
// # Process and ids
//
// One bridge with one app-server serves the prompts of an awake session. The agent chooses the id
// of the session's thread. The notebook has it; if the notebook is lost, the newest rollout that
// belongs to no subagent is the main thread. In a fresh sandbox both files are restored, and
// thread/resume continues with the history. If the thread is lost, a new one starts without memory.
//
// A prompt is sent with an id made of its run, its prompt and its author, which the agent stores
// with the message. A run that is delivered again is recognized by it: the outcome of a completed
// turn is reported again and nothing runs; a turn whose process was lost is continued without
// sending the prompt twice.
//
// The bridge configures its own model provider for the thread, because the built-in one requires a
// login. The agent reads the key from OPENAI_API_KEY, and the address from OPENAI_BASE_URL if it is
// set. Neither is ever an argument or in a file. Update checks and all telemetry are off.
//
// A revert truncates the agent's rollouts and the notebook before the turn of a prompt, and those of
// its subagents to their length at that time; it deletes the databases that the agent has made of
// them.
//
// # Blocks
//
//	item of Codex                             block                      its id
//	userMessage                               user_message               the item's
//	agentMessage, plan                        assistant_text             the item's
//	reasoning                                 thinking                   the item's; none without words
//	commandExecution                          tool_use exec_command      the item's, which is the call's
//	fileChange                                tool_use apply_patch       the item's
//	mcpToolCall                               tool_use mcp__<server>__<tool>
//	dynamicToolCall, webSearch, imageView,    tool_use                   the item's
//	imageGeneration, sleep
//	collabAgentToolCall spawnAgent,           subagent                   the item's
//	subAgentActivity started
//	other collabAgentToolCall                 tool_use wait_agent, …     the item's
//	their results                             tool_result                <item>/result
//	a question to the user                    tool_use request_user_input   the call's
//	contextCompaction                         system compaction          the item's
//	a request that is sent again              system retry               <turn>/retry/<n>
//	a turn that failed                        system error               <turn>/error
//	a turn that was given up                  system error               <turn>/deadline
//
// A subagent's conversation has its thread's id. Its block ends with the first turn of its thread,
// however the agent learned of it. A fork, or a thread that replaces a lost one, is the main
// conversation too; a review belongs to the conversation that requested it. Commands are shown
// without the shell around them. A result is the command's exit code, if it is not 0, and its
// output; of more than 64 KiB the middle is left out, as the agent does in its rollout. Diffs are
// the agent's own. For models that call their tools from JavaScript the calls are shown, not the
// code.
//
// # Turns
//
// A turn ends when the main thread's has ended and those of all subagents that it started. An
// interrupt reaches them all, and what they run in the background. What runs in the background when
// a turn ends by itself runs on; its call counts as successful and has no result. Usage is the sum
// of all threads. The agent's cost is not known.
//
// # Questions
//
// With permissions that do not allow everything the agent asks before every command that it does not
// know to be harmless, before changes of files, and before calls of MCP servers. "Session" applies as
// long as the process lives; "always" for a command also writes one of the agent's own rules, which
// lives as long as the sandbox. The message of a rejection is sent to the agent as a message of its
// user. Of the tools, exec_command and web_search are removed if they are denied by name; the others
// are asked for, and rejected. Questions to the user are possible in every session.
//
// # Profiles
//
// Instructions are ~/.codex/AGENTS.md, skills ~/.codex/skills/<name>/SKILL.md, subagents
// ~/.codex/agents/<name>.toml, MCP servers ~/.codex/config.toml. Commands are files in
// ~/.codex/prompts, which the bridge puts in the place of a prompt that begins with /<name>;
// $ARGUMENTS in them is what follows.
//
// # Stream and transcript
//
// Images in results of MCP servers and of other tools, and those that the agent has drawn, are named as the images of the block.
// The stream does not have the bytes of those that view_image reads.
//
// Folding the translated stream gives the blocks that Parse finds: ids, order, content, status,
// time, and the prompt's author. A rollout has items once they have ended. The bridge writes what it
// lacks into the notebook before it prints it: where each item began, calls that never end, retried
// requests, text in progress when a turn was aborted, answers. The exceptions:
//
//   - What the model was writing when the process was killed is in the stream alone; a call that it
//     had made by then, and the agent had not begun, is in the transcript alone.
//   - Lines that the translator does not understand are system blocks of subtype "unparsed" in the
//     stream alone; Parse skips what it does not understand.
//   - A run that was only known has its blocks where it was carried out.
//   - A stream longer than 8 KiB that is aborted changes its state at the end, and is not
//     shown whole once more.
//   - Of a result of an MCP server longer than 64 KiB the transcript lacks the middle.
//   - Calls that the agent refuses before they begin, such as of a tool that is not there or of a
//     patch that does not fit, are in neither: it is sent to the model alone.
//
// Without a notebook, as with files of other clients, the order of items is that of their times, and:
//
//   - What was being written when a turn was aborted, and requests that were sent again, are in
//     the stream alone.
//   - A call that never ended, or was not allowed, has the time of the model's own call in the
//     transcript, and a question has the time of its frame in the stream.
//   - What was answered to a question is in the transcript alone.
//   - A call whose approval was answered with cancel counts as aborted in the transcript, and as
//     rejected in the stream; of an aborted patch the transcript has the model's own text.
//   - In a stream of codex exec --json items have different ids and no times, there are no
//     prompts, no diffs, no directories of commands, and nothing of what subagents do.
//   - Texts that a reviewer writes on its way are in the rollout of the review, which neither shows.
//
// # When things fail
//
//	what fails                         what follows
//	the model refuses                  the turn failed, in the model's words
//	the model's server, for a while    the agent sends the request again, which is shown
//	the model's server, for long       after 10 broken streams, or 5 minutes without anything, the turn
//	                                   failed for that reason; the agent stays usable
//	the key is wrong (401, 403)        the turn failed for that reason, at the first attempt
//	the stream of the model            what was written is removed, the next attempt follows
//	codex ends                         the bridge says so and ends with code 3: open blocks aborted; the
//	                                   turn failed, reason agent_crashed; the next prompt starts both
//	the bridge is killed               the kernel kills codex; the same follows
//	the runner had to kill it          open blocks aborted; the turn cancelled, reason aborted
//	a line is broken or unknown        a system block holds its beginning; the turn continues
//	the notebook cannot be written      it is reported on stderr; the transcript lacks a line
//	a transcript is truncated          whole lines count
//	the notebook is gone                the thread is found by its rollout
//	the rollouts are gone              a new thread begins, and remembers nothing
package codex
