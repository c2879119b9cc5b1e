package modelserver

import (
	"regexp"
	"time"
)

// Step is one answer of the model.
type Step struct {
	Thinking string          // only if the request allows it
	Text     string          //
	Recall   bool            // append the first prompt of the conversation and the number of prompts to the text
	Calls    []Call          // tools to call, all at once
	Pause    time.Duration   // between the pieces of the answer
	Hold     <-chan struct{} // if not nil, everything after the first piece waits until it is closed
	Status   int             // answer with this HTTP status and an error instead
	Cut      bool            // drop the connection in the middle of the text
}

// Call is a call of one of the agent's tools.
type Call struct {
	Tool  string // as the agent offers it
	Input any
}

// Bash calls the shell of Claude Code.
func Bash(command string) Call {
	return Call{Tool: "Bash", Input: map[string]any{"command": command, "description": "Run a command"}}
}

// Subagent makes a subagent of Claude Code follow a prompt, in the background or not.
func Subagent(prompt string, background bool) Call {
	return Call{Tool: "Agent", Input: map[string]any{
		"description": "Look into it", "prompt": prompt, "subagent_type": "general-purpose", "run_in_background": background,
	}}
}

// Ask asks the user a question.
func Ask(question string, options ...string) Call {
	list := make([]map[string]any, len(options))
	for i, o := range options {
		list[i] = map[string]any{"label": o, "description": "It is " + o}
	}
	return Call{Tool: "AskUserQuestion", Input: map[string]any{"questions": []map[string]any{{
		"question": question, "header": "Choice", "options": list, "multiSelect": false,
	}}}}
}

var mark = regexp.MustCompile(`\{\{([a-z0-9-]+)\}\}`)

// finalStep is the answer after the last step of a script.
var finalStep = Step{Text: "There is nothing left to do."}

// next returns the next step of a conversation.
func (s *Server) next(history []turn) Step {
	answers := 0
	for i := len(history) - 1; i >= 0; i-- {
		t := history[i]
		if t.model {
			answers++
			continue
		}
		marks := mark.FindAllStringSubmatch(t.text, -1)
		if len(marks) == 0 {
			continue
		}
		script := s.scripts[marks[len(marks)-1][1]]
		if answers < len(script) {
			return script[answers]
		}
		return finalStep
	}
	return finalStep
}
