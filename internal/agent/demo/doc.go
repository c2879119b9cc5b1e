// Package demo is a small scripted agent, for trying overwinter out and for tests. A prompt is a
// script; the agent does what its lines say. It is built like Claude Code in its stream-json mode,
// so that what works with it works with a real agent: one long-lived process, prompts as JSON lines
// on stdin, partial text on stdout, its own ids, a transcript on disk as its only memory.
//
// Its support has two halves. [Adapter] is pure and runs in the worker. Package demoagent is the agent
// itself and runs in the sandbox, as a sub-command of overwinter-runner. Package demoformat has the
// lines that they exchange.
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
// A prompt is read line by line:
//
//	$ COMMAND             runs COMMAND with sh -c in the workspace, as the tool "shell"
//	write FILE: TEXT      writes exactly TEXT to FILE in the workspace, as the tool "write"
//	look: FILE            looks at an image in the workspace, as the tool "look"
//	sleep 2s              works for that long (a Go duration), as the tool "sleep"
//	think: TEXT           thinks TEXT
//	ask: QUESTION | A | B asks the user, who may choose A or B or say something else, as the tool "ask"
//	tool NAME: {…}        calls the tool NAME of overwinter with this input in JSON, such as tool set_title: {"title": "Tests"}
//	recall                says how many prompts it has had, this one included, and quotes the first
//	note                  says what it was given with the prompt and no person wrote
//	title: TEXT           gives the session a title
//	fail: REASON          ends the turn as failed
//	crash                 exits with code 3 at once
//	subagent NAME: LINE   has a subagent do LINE, in its own conversation
//	slow 50ms: TEXT       says TEXT with that pause before every word
//
// The answers that ask offers may be left out, as in "ask: What is your name?"; a question of more
// than 4 KiB is said instead. Any other line is said as it stands, one text_delta per word; lines of
// speech that follow each other are one block. Tokens are words: those of the prompt in, those said
// and thought out. They cost nothing.
//
// # Turns
//
// A turn begins with the line "init" and the prompt's own "user" line and ends with a "result".
// Prompts that arrive while one is worked on wait. An interrupt breaks the turn off wherever it is,
// kills the running command with all its descendants, and leaves the agent usable. A prompt whose
// uuid is in the transcript already is not run again: it is answered with "acknowledged" and the
// outcome on record, which is unknown when the agent died on it. The uuid is made from the run's
// id, so delivering a run twice does nothing while a retry, being another run, is carried out.
// When stdin ends the agent finishes what it has and exits.
//
// # Questions
//
// The agent waits in two cases. The tool "ask" is at work until the user has answered, and what it
// answers is what the user said. And the tools "shell" and "write" ask for permission before they
// run, as the flags of the process say: those named by --ask until they are allowed, those named by
// --ask-every-time always. Launch names by the first what the session's permissions put to people
// and by the second what they deny, so that what is denied now stays denied whatever was said
// before. The other tools do no harm and never ask. A subagent asks as the agent does.
//
//	tool_use    the call is on record, and pending
//	question    the turn waits; its uuid is the question's own
//	answered    it waits no more: it was answered, or the turn interrupted
//	tool_running, tool_result
//
// For "ask" tool_running comes before the question. Once runs the call; session does and has the
// tool not ask again as long as the process lives; always does and writes the tool's name to the
// file "allowed", which stays with the transcript. A rejected call has a result that is an error
// and holds the message, and the turn continues. The first answer to a question counts; another, or
// one to a question that is not pending, is ignored.
//
// # Stream and transcript
//
// A line goes to the transcript first and to stdout second, and is the same in both. Only "init",
// "delta", "tool_running", "question", "answered" and "acknowledged" are not in the transcript. Therefore folding the
// translated stream gives the blocks that Parse finds: ids, order, content, status, time. A block
// that nothing closed is aborted on both sides. The exceptions:
//
//   - Text that was streaming when the process was killed is empty in the transcript.
//   - A process killed between the two writes of a line leaves the transcript one line ahead.
//   - Lines that the translator does not understand are system blocks of subtype "unparsed" in the
//     stream alone; Parse skips what it does not understand.
//   - A run that was only acknowledged has its blocks where it was carried out.
//
// # When things fail
//
//	what fails                         what follows
//	the process ends without a result  open blocks aborted; the turn failed, reason agent_crashed
//	the runner had to kill it          open blocks aborted; the turn cancelled, reason aborted
//	a line is broken or unknown        a system block holds its beginning; the turn continues
//	the transcript is truncated        whole lines count; the next process begins a new line
//	the transcript cannot be written   the process says so on stderr and exits with code 1
//	stdin ends while a question waits  it is rejected, as are those that follow; the turn continues
//	the process ends while one waits   it waits no more; nothing ran that was asked about
//	the transcript is gone             the agent has forgotten everything, and recall shows it
package demo
