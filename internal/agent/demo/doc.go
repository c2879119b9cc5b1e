// Package demo is a small scripted agent, for trying out overwinter and for tests. A prompt is a
// script, and the agent executes its lines. It is built like Claude Code in its stream-json mode,
// so that code that works with it also works with a real agent: one long-lived process, prompts as
// JSON lines on stdin, partial text on stdout, its own ids, and a transcript on disk as its only
// memory.
//
// [Adapter] is pure and runs in the worker. Package demoagent is the agent itself and runs in the
// sandbox, as a subcommand of overwinter-runner. Package demoformat contains the lines that they
// exchange.
//
//	            stdin                               stdout
//	prompt ───▶ {"type":"user","uuid":…}  agent ──▶ one JSON line per thing that happens ──▶ Translate
//	abort  ───▶ {"type":"interrupt",…}      │
//	answer ───▶ {"type":"answer",…}         │
//	                                        └─────▶ $HOME/.overwinter-demo/<session>/transcript.jsonl ──▶ Parse
//	                                                                       …/subagents/<id>.jsonl
//	                                                                       …/allowed
//
// # Scripts
//
// The agent executes a prompt line by line:
//
//	$ COMMAND             runs COMMAND with sh -c in the workspace, as the tool "shell"
//	write FILE: TEXT      writes exactly TEXT to FILE in the workspace, as the tool "write"
//	look: FILE            looks at an image in the workspace, as the tool "look"
//	sleep 2s              waits for that long (a Go duration), as the tool "sleep"
//	think: TEXT           prints TEXT as thoughts
//	ask: QUESTION | A | B asks the user, who may choose A or B or write another answer, as the tool "ask"
//	tool NAME: {…}        calls the tool NAME of overwinter with this input in JSON, such as tool set_title: {"title": "Tests"}
//	recall                prints the number of prompts so far, including this one, and the first prompt
//	note                  prints the note that came with the prompt
//	title: TEXT           gives the session a title
//	fail: REASON          ends the turn as failed
//	crash                 exits with code 3 at once
//	subagent NAME: LINE   runs LINE in a subagent, in its own conversation
//	slow 50ms: TEXT       prints TEXT with that pause before every word
//
// The answers of ask may be omitted, as in "ask: What is your name?". A question of more than 4 KiB
// is printed as text instead. Any other line is printed as text, with one text_delta per word;
// consecutive lines of text are one block. Tokens are words: input tokens are the words of the
// prompt, output tokens the words of text and thoughts. They cost nothing.
//
// # Turns
//
// A turn begins with the line "init" and the prompt's own "user" line and ends with a "result".
// Prompts that arrive during a turn wait. An interrupt aborts the turn at any point, kills the
// running command with all its descendants, and leaves the agent usable. If the uuid of a prompt is
// already in the transcript, the prompt is not run again: the agent answers with "acknowledged" and
// the recorded outcome, or "unknown" if the agent died during that prompt. The uuid is derived from
// the run's id, so delivering a run twice has no effect, while a retry, which is another run, is
// executed. When stdin is closed, the agent finishes its prompts and exits.
//
// # Questions
//
// The agent waits for an answer in two cases. The tool "ask" runs until the user has answered, and
// its result is the answer. The tools "shell" and "write" ask for permission before they run if the
// flags of the process say so: those named by --ask until they are allowed, those named by
// --ask-every-time always. Launch passes the tools that the session's permissions leave to people
// with the first flag, and the tools that they deny with the second, so that a denial overrides
// earlier answers. The other tools are harmless and never ask. Subagents ask in the same way.
//
//	tool_use    the call is recorded and pending
//	question    the turn waits; its uuid is the question's own
//	answered    it no longer waits: it was answered, or the turn was interrupted
//	tool_running, tool_result
//
// For "ask", tool_running precedes the question. The decision once runs the call. session also lets
// the tool run without asking until the process exits. always also writes the tool's name to the
// file "allowed", which is stored with the transcript. A rejected call has an error with the
// message as its result, and the turn continues. The first answer to a question counts; later ones,
// and answers to questions that are not pending, are ignored.
//
// # Stream and transcript
//
// Every line is written to the transcript first and to stdout second, and is the same in both. Only
// "init", "delta", "tool_running", "question", "answered" and "acknowledged" are not in the
// transcript. Therefore folding the translated stream gives the blocks that Parse finds, with the
// same ids, order, content, status and time. A block that was never closed is aborted on both
// sides. The exceptions:
//
//   - Text that was streaming when the process was killed is empty in the transcript.
//   - If a process is killed between the two writes of a line, the transcript is one line ahead.
//   - Lines that the translator does not understand are system blocks of subtype "unparsed", only
//     in the stream. Parse skips lines that it does not understand.
//   - A run that was only acknowledged has its blocks where it was executed.
//
// # When things fail
//
//	failure                            result
//	the process exits without result   open blocks are aborted; the turn fails, reason agent_crashed
//	the runner had to kill it          open blocks are aborted; the turn is cancelled, reason aborted
//	a line is invalid or unknown       a system block contains its beginning; the turn continues
//	the transcript is truncated        complete lines are used; the next process begins a new line
//	the transcript cannot be written   the process reports it on stderr and exits with code 1
//	stdin ends during a question       it and all later questions are rejected; the turn continues
//	the process exits during one       it no longer waits; the call did not run
//	the transcript is missing          the agent has no memory, as recall shows
package demo
