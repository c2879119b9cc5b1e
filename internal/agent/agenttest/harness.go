// Package agenttest is the conformance suite of agent adapters. It runs the real program as a
// process, as the runner in a sandbox would, and checks what package agent promises: blocks folded
// from the stream are the blocks parsed from the transcript, a translator resumes from its state
// after any frame, nothing that an agent prints is an error, and the transcript alone is enough to
// resume.
//
// An adapter is finished when Run passes. What an agent cannot do, its Harness says with a reason,
// and the suite prints it.
package agenttest

import (
	"flag"
	"os/exec"
	"testing"

	"github.com/overwinter-dev/overwinter/internal/agent"
)

// What prompts of a Harness must mention or do.
const (
	// Word is in Prompts.Hello and must be in the answer to Prompts.Recall.
	Word = "zebra"
	// FileName and FileText are what Prompts.WriteFile must have written in the workspace.
	FileName = "agenttest.txt"
	FileText = "written by the agent"
	// Choice is what the suite answers to the question that Prompts.Question asks, and Refusal what
	// it says when it does not allow Prompts.Guarded.
	Choice  = "Blue"
	refusal = "not today"
	// Title is what Prompts.Tool must give the session.
	Title = "A title of the agent"
)

// Harness is an agent under test.
type Harness struct {
	Adapter agent.Adapter
	// Command makes the process that launch describes. Argv[0] names the program in a sandbox,
	// which is somewhere else here; environment and directory are set by the suite.
	Command func(t *testing.T, launch agent.Launch) *exec.Cmd
	// Prompts make the agent do what the scenarios are about.
	Prompts Prompts
	// Cannot gives the reason for every scenario that the agent cannot be put through.
	Cannot map[string]string
	// KillLosesText says that text which was streaming at a kill -9 is not in the transcript.
	KillLosesText bool
	// PromptsUnsigned says that the transcript does not record which prompt a message was, nor
	// whose.
	PromptsUnsigned bool
	// Untimed are subtypes of system blocks whose time the stream does not have: there it is the
	// frame's.
	Untimed []string
	// GoesOnWithKnownPrompts says that a prompt which was delivered before is not run again;
	// instead the agent is asked to continue it and reports that.
	GoesOnWithKnownPrompts bool
	// Unknown are lines of stdout that the adapter does not know, in addition to those of the
	// suite.
	Unknown []string
}

// Prompts are the words that bring an agent to do something.
type Prompts struct {
	Hello       string // answers with text; mentions Word
	WriteFile   string // writes FileText to FileName with a tool
	FailingTool string // calls a tool that fails, then ends the turn as completed
	Thinking    string // thinks, then answers
	Subagent    string // calls a subagent that answers
	LongText    string // streams text for at least a minute
	LongTool    string // has a tool at work for at least a minute
	Recall      string // answers with the first prompt of the session
	// Parallel has the model call two tools at once, then ends the turn as completed. Both succeed.
	Parallel string
	// Guarded writes FileText to FileName with a tool that wants permission where the agent asks for
	// it, then ends the turn as completed, whether it was allowed or not.
	Guarded string
	// Question asks the user one thing, with Choice among the answers, then ends the turn as completed.
	Question string
	// Tool has the model call the tool set_title of overwinter with Title, then ends the turn as completed.
	Tool string
	// Steerable has a tool at work for a few seconds, then answers with text, and Steer is what the agent is given meanwhile. It answers
	// to that with text too, in the same turn. Empty for an agent that takes no prompts in a running turn.
	Steerable, Steer string
	// Refused is a prompt whose request the model's server refuses for good.
	Refused string
	// Unauthorized and Forbidden are prompts whose requests the model's server refuses with 401 and 403, as it does with a
	// wrong key. The turn must end at once, whatever the agent's limits for other failures. Empty for an agent whose model
	// needs no key.
	Unauthorized, Forbidden string
	// Endless is a prompt whose requests the model's server always fails, with an error that is
	// worth a retry. The agent must give up within 30 seconds; if it takes longer by default,
	// Command shortens its limits.
	Endless string
}

// Most of the processor time of the suite is starts of agents.
var apart = flag.Bool("apart", false, "run each scenario of an agent in its own session, with its own process")

// Run puts the adapter through every scenario. Those that leave the agent's process as it was follow each other in one session, as the
// prompts of a person do, unless -apart is given; its transcript is checked when all of them are over.
func Run(t *testing.T, h Harness) {
	together(t, h)
	for _, s := range scenarios {
		if s.in == shared && !*apart {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			h.can(t, s.name)
			s.run(t, newBench(t, h))
		})
	}
}

// together runs the scenarios of the shared session. After one that fails, the others continue in another session.
func together(t *testing.T, h Harness) {
	t.Helper()
	if *apart {
		return
	}
	var b *bench
	for _, s := range scenarios {
		if s.in != shared {
			continue
		}
		passed := t.Run(s.name, func(subtest *testing.T) {
			h.can(subtest, s.name)
			if b == nil {
				b = newBench(t, h)
				b.owner = t
			}
			s.run(subtest, b)
		})
		if !passed {
			b = nil
		}
	}
	if b != nil {
		b.checkTranscripts(t)
	}
}

// can skips a scenario that the agent cannot be put through.
func (h Harness) can(t *testing.T, scenario string) {
	t.Helper()
	if reason, ok := h.Cannot[scenario]; ok {
		t.Skipf("%s cannot: %s", h.Adapter.Name(), reason)
	}
}
