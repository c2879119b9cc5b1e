// Package scripted contains the prompts of the conformance suite for agents whose model is a
// modelserver, and the model's script for each prompt.
package scripted

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/agenttest"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
)

// UntilKilled is a command that runs until the agent that started it has exited, so that killing
// only the agent leaves no process running.
const UntilKilled = "tail --pid=$PPID -f /dev/null; echo late"

// Prompts are the prompts of a harness. Each names its script.
var Prompts = agenttest.Prompts{
	Hello:       "{{hello}} hello to the " + agenttest.Word,
	WriteFile:   "{{write}} the file",
	FailingTool: "{{fail}} please",
	Thinking:    "{{think}} about it",
	Subagent:    "{{delegate}} it",
	LongText:    "{{long}} story",
	LongTool:    "{{wait}} for it",
	Recall:      "{{recall}} the beginning",
	Parallel:    "{{parallel}} please",
	Guarded:     "{{write}} the file",
	Question:    "{{ask}} me",
	Tool:        "{{tool}} it",
	Steerable:   "{{steerable}} please",
	Steer:       "and think of cats",
	Refused:     "{{refused}} it",
	Endless:     "{{endless}} it",

	Unauthorized: "{{unauthorized}} it",
	Forbidden:    "{{forbidden}} it",
}

// Tools are the calls with which a model uses the tools of an agent.
type Tools struct {
	Shell func(command string) modelserver.Call
	// Write writes agenttest.FileText to agenttest.FileName. If nil, the shell is used.
	Write *modelserver.Call
	Fail  modelserver.Call // a call that fails
	// Delegate makes a subagent follow the script {{child}}, which calls Child. If Child is nil,
	// the shell is used.
	Delegate modelserver.Call
	Child    *modelserver.Call
	Ask      *modelserver.Call // asks for a color; nil if the agent cannot ask
	SetTitle string            // the agent's name of overwinter's tool set_title; empty if the agent is not offered the tools
	Long     string            // text that takes long to write; empty for one word many times
	Failing  int               // HTTP status with which the model always fails; 0 for 500
}

// Scripts returns the model's script for each of the prompts.
func Scripts(t Tools) map[string][]modelserver.Step {
	calls := func(c ...modelserver.Call) []modelserver.Call { return c }
	shell := func(own *modelserver.Call, command string) []modelserver.Call {
		if own != nil {
			return calls(*own)
		}
		return calls(t.Shell(command))
	}
	scripts := map[string][]modelserver.Step{
		"hello":  {{Text: "Hello to you, and to all who are with you."}},
		"recall": {{Text: "I remember ", Recall: true}},
		"write": {
			{Text: "I write a file.", Calls: shell(t.Write, "printf '%s' '"+agenttest.FileText+"' >"+agenttest.FileName)},
			{Text: "It is written."},
		},
		"fail":         {{Calls: calls(t.Fail)}, {Text: "That did not work."}},
		"think":        {{Thinking: "Should I say it? I think I should.", Text: "Yes."}},
		"delegate":     {{Text: "A subagent shall do it.", Calls: calls(t.Delegate)}, {Text: "It is at work."}, {Text: "It is done."}},
		"child":        {{Text: "I look around.", Calls: shell(t.Child, "echo a subagent was here")}, {Text: "I have looked around."}},
		"long":         {{Text: cmp.Or(t.Long, strings.Repeat("word ", 5000)), Pause: 20 * time.Millisecond}},
		"wait":         {{Text: "This takes long.", Calls: calls(t.Shell(UntilKilled))}, {Text: "It took long."}},
		"steerable":    {{Text: "I wait a little.", Calls: calls(t.Shell("timeout 2 tail -f /dev/null; echo late"))}, {Text: "I have waited."}},
		"parallel":     {{Text: "Two at once.", Calls: calls(t.Shell("echo one"), t.Shell("echo two"))}, {Text: "Both are done."}},
		"refused":      {{Status: http.StatusBadRequest}},
		"unauthorized": {{Status: http.StatusUnauthorized}},
		"forbidden":    {{Status: http.StatusForbidden}},
		"endless":      {{Status: cmp.Or(t.Failing, http.StatusInternalServerError)}},
	}
	if t.SetTitle != "" {
		scripts["tool"] = []modelserver.Step{
			{Text: "I name it.", Calls: calls(modelserver.Call{Tool: t.SetTitle, Input: map[string]any{"title": agenttest.Title}})},
			{Text: "It has a name."},
		}
	}
	if t.Ask != nil {
		scripts["ask"] = []modelserver.Step{{Text: "I have a question.", Calls: calls(*t.Ask)}, {Text: "Thank you."}}
	}
	return scripts
}
