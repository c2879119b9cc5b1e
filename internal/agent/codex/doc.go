// Package codex is the agent codex: OpenAI's Codex, driven over its app-server in the same way as
// its own editors. [Adapter] is pure. Package codexbridge is the bridge between the runner, which
// exchanges only lines, and codex app-server, which speaks JSON-RPC. Package codexformat contains
// the formats that both use. The program itself is the pinned npm package of [Adapter.Packages]; it
// needs nothing else, not even Node.
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
// of the session's thread, and the bridge records it in the notebook. If the notebook is lost, the
// newest rollout that belongs to no subagent is the main thread. In a new sandbox both files are
// restored, and thread/resume continues with the history. If the thread is lost, a new one starts
// without memory.
//
// A prompt is sent with an id that contains its run, its prompt and its author, and the agent
// stores the id with the message. It identifies a run that is delivered again: if the turn has
// completed, its outcome is reported again and nothing runs; if the turn's process was lost, the
// turn is continued without sending the prompt twice.
//
// The bridge configures its own model provider for the thread, because the built-in one requires a
// login. The agent reads the key from OPENAI_API_KEY, and the address from OPENAI_BASE_URL if it is
// set. Neither is ever passed as an argument or written to a file. Update checks and all telemetry
// are off.
//
// A revert truncates the agent's rollouts and the notebook before the turn of a prompt, and those
// of its subagents to their length at that time. It deletes the databases that the agent derives
// from them.
//
// # Blocks
//
//	item of Codex                             block                      block id
//	userMessage                               user_message               the item's
//	agentMessage, plan                        assistant_text             the item's
//	reasoning                                 thinking                   the item's; none without text
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
//	a retried request                         system retry               <turn>/retry/<n>
//	a turn that failed                        system error               <turn>/error
//	a turn that timed out                     system error               <turn>/deadline
//
// A subagent's conversation has its thread's id. Its block ends with the first turn of its thread,
// regardless of how the agent was notified of that end. A fork, or a thread that replaces a lost
// one, is the main conversation too; a review belongs to the conversation that requested it.
// Commands are shown without the shell around them. A result is the command's exit code, if it is
// not 0, and its output; if it is longer than 64 KiB, its middle is omitted, as in the agent's
// rollout. Diffs are the agent's own. If a model calls its tools from JavaScript, the calls are
// shown, not the code.
//
// # Turns
//
// A turn ends when the turn of the main thread and those of all subagents that it started have
// ended. An interrupt stops all of them, and their background commands. If the turn ends by itself,
// background commands keep running; their calls are shown as successful, without a result. Usage is
// the sum of all threads. The agent does not report its cost.
//
// # Questions
//
// If permissions do not allow everything, the agent asks before every command that it does not
// consider harmless, before changes of files, and before calls of MCP servers. "Session" applies
// until the process exits; "always" for a command also writes one of the agent's own rules, which
// lasts as long as the sandbox. The message of a rejection is sent to the agent as a user message.
// The tools exec_command and web_search are removed if permissions deny them by name; for other
// denied tools the agent asks, and the call is rejected. Questions to the user are possible in
// every session.
//
// # Profiles
//
// Instructions are ~/.codex/AGENTS.md, skills ~/.codex/skills/<name>/SKILL.md, subagents
// ~/.codex/agents/<name>.toml, MCP servers ~/.codex/config.toml. Commands are files in
// ~/.codex/prompts. The bridge replaces a prompt that begins with /<name> by the file, and
// $ARGUMENTS in it by the rest of the prompt.
//
// # Stream and transcript
//
// Images in results of MCP servers and of other tools, and generated images, are listed as the
// images of the block. The stream does not contain the bytes of images that view_image reads.
//
// Folding the translated stream gives the blocks that Parse finds, with the same ids, order,
// content, status, time and authors of prompts. A rollout contains an item only after it has ended.
// Before it prints a line, the bridge writes the information that the rollout lacks to the
// notebook: where each item began, calls that never end, retried requests, text in progress when a
// turn was aborted, and answers. The exceptions:
//
//   - Output that the model was writing when the process was killed is only in the stream. A call
//     that the model had made by then, and that the agent had not begun, is only in the transcript.
//   - Lines that the translator does not understand are system blocks of subtype "unparsed", only
//     in the stream. Parse skips lines that it does not understand.
//   - A run that was only acknowledged as known has its blocks where it was executed.
//   - If a text longer than 8 KiB is aborted, only its status changes; it is not shown again in
//     full.
//   - The transcript lacks the middle of an MCP server's result that is longer than 64 KiB.
//   - Calls that the agent rejects before they begin, such as of an unknown tool or with a patch
//     that does not apply, are in neither: the rejection is sent only to the model.
//
// Without a notebook, as with files of other clients, items are ordered by time, and:
//
//   - Output that was being written when a turn was aborted, and requests that were sent again, are
//     only in the stream.
//   - A call that never ended, or was not allowed, has the time of the model's own call in the
//     transcript, and a question has the time of its frame in the stream.
//   - The answer to a question is only in the transcript.
//   - A call whose approval was answered with cancel is aborted in the transcript and rejected in
//     the stream. For an aborted patch, the transcript contains the model's own text.
//   - In a stream of codex exec --json, items have different ids and no times, and there are no
//     prompts, diffs, directories of commands, or actions of subagents.
//   - Texts that a reviewer writes during its work are in the rollout of the review, which neither
//     side shows.
//
// # When things fail
//
//	failure                            result
//	the model refuses                  the turn fails with the model's message
//	the model API, temporarily         the agent retries, which is shown
//	the model API, permanently         after 10 broken streams, or 5 minutes without a response, the turn
//	                                   fails for that reason; the agent stays usable
//	the key is wrong (401, 403)        the turn fails at the first attempt
//	the stream of the model            partial output is removed, the next attempt follows
//	codex exits                        the bridge reports it and exits with code 3: open blocks are aborted; the
//	                                   turn fails, reason agent_crashed; the next prompt starts both
//	the bridge is killed               the kernel kills codex; the same result
//	the runner had to kill it          open blocks are aborted; the turn is cancelled, reason aborted
//	a line is invalid or unknown       a system block contains its beginning; the turn continues
//	the notebook cannot be written     it is reported on stderr; the transcript lacks a line
//	a transcript is truncated          complete lines are used
//	the notebook is missing            the thread is found by its rollout
//	the rollouts are missing           a new thread begins without memory
package codex
