// Package agenttest is the conformance suite of agent adapters. It runs the real program as a
// process, as the runner in a sandbox would, and checks the guarantees of package agent: blocks
// folded from the stream are the blocks parsed from the transcript, a translator resumes from its
// state after any frame, nothing that an agent prints is an error, and the transcript alone is
// enough to resume.
//
// An adapter is finished when Run passes. Its Harness lists the scenarios that the agent does not
// support, with reasons, and the suite prints them.
package agenttest

import (
	"flag"
	"os/exec"
	"slices"
	"testing"

	"github.com/overwinter-dev/overwinter/internal/agent"
)

// Values that the prompts of a Harness must contain or produce.
const (
	// Word is in Prompts.Hello and must be in the answer to Prompts.Recall.
	Word = "zebra"
	// FileName and FileText are the file that Prompts.WriteFile must write in the workspace.
	FileName = "agenttest.txt"
	FileText = "written by the agent"
	// Choice is the suite's answer to the question that Prompts.Question asks. Refusal is its
	// message when it rejects Prompts.Guarded.
	Choice  = "Blue"
	refusal = "not today"
	// Title is the title that Prompts.Tool must give the session.
	Title = "A title of the agent"
)

// Harness is an agent under test.
type Harness struct {
	Adapter agent.Adapter
	// Command returns the process that launch describes. Argv[0] is the program's path in a
	// sandbox, so it must be replaced here. The suite sets environment and directory.
	Command func(t *testing.T, launch agent.Launch) *exec.Cmd
	// Prompts make the agent perform the actions of the scenarios.
	Prompts Prompts
	// Cannot gives the reason for every scenario that the agent does not support.
	Cannot map[string]string
	// Alone are the scenarios for which Command starts the agent in another way: none shares its
	// session.
	Alone []string
	// KillLosesText is set if text that was streaming at a kill -9 is missing in the transcript.
	KillLosesText bool
	// PromptsUnsigned is set if the transcript does not record the prompt and the author of a
	// message.
	PromptsUnsigned bool
	// Untimed are subtypes of system blocks whose time the stream lacks. There they have the
	// frame's time.
	Untimed []string
	// GoesOnWithKnownPrompts is set if a prompt that was delivered before is not run again.
	// Instead, the agent is asked to continue the prompt, and a block reports the request.
	GoesOnWithKnownPrompts bool
	// Unknown are lines of stdout that the adapter does not know, in addition to the suite's own.
	Unknown []string
}

// Prompts are prompts that make an agent do something.
type Prompts struct {
	Hello       string // answers with text; mentions Word
	WriteFile   string // writes FileText to FileName with a tool
	FailingTool string // calls a tool that fails, then ends the turn as completed
	Thinking    string // thinks, then answers
	Subagent    string // calls a subagent that answers
	LongText    string // streams text for at least a minute
	LongTool    string // runs a tool for at least a minute
	Recall      string // answers with the first prompt of the session
	// Parallel makes the model call two tools in parallel, then ends the turn as completed. Both
	// calls succeed.
	Parallel string
	// Guarded writes FileText to FileName with a tool that needs permission if the agent is
	// configured to ask, then ends the turn as completed, whether the call was allowed or not.
	Guarded string
	// Question asks the user one question, with Choice among the answers, then ends the turn as
	// completed.
	Question string
	// Tool makes the model call overwinter's tool set_title with Title, then ends the turn as
	// completed.
	Tool string
	// Steerable runs a tool for a few seconds, then answers with text. Steer is the prompt that the
	// agent is given meanwhile. It answers that with text too, in the same turn. Empty for an agent
	// that takes no prompts in a running turn.
	Steerable, Steer string
	// Refused is a prompt whose request the model API permanently rejects.
	Refused string
	// Unauthorized and Forbidden are prompts whose requests the model API rejects with 401 and 403,
	// as it does for a wrong key. The turn must end at once, whatever the agent's retry limits.
	// Empty for an agent whose model needs no key.
	Unauthorized, Forbidden string
	// Endless is a prompt whose requests the model API always answers with a retryable error. The
	// agent must stop retrying within 30 seconds; if it takes longer by default, Command shortens
	// its limits.
	Endless string
}

// Starting agents takes most of the suite's processor time.
var apart = flag.Bool("apart", false, "run each scenario of an agent in its own session, with its own process")

// Run runs every scenario with the adapter. The scenarios of a shared session follow each other, as
// the prompts of a person do, unless -apart is given; the session's transcript is checked after the
// last one.
func Run(t *testing.T, h Harness) {
	for _, in := range []place{shared, asking, restarted, killed} {
		h.runShared(t, in)
	}
	for _, s := range scenarios {
		if h.place(s) != alone {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			h.can(t, s.name)
			s.run(t, newBench(t, h))
		})
	}
}

// runShared runs the scenarios of a shared session. If one fails, the others continue in a new
// session.
func (h Harness) runShared(t *testing.T, in place) {
	t.Helper()
	var b *bench
	for _, s := range scenarios {
		if h.place(s) != in {
			continue
		}
		passed := t.Run(s.name, func(subtest *testing.T) {
			h.can(subtest, s.name)
			if b == nil {
				b = h.newShared(t, in)
			}
			s.run(subtest, b)
		})
		if !passed {
			b = nil
		}
	}
	if b != nil && b.launched {
		b.checkTranscripts(t)
	}
}

// newShared returns a session that ends with t, for several scenarios.
func (h Harness) newShared(t *testing.T, in place) *bench {
	t.Helper()
	b := newBench(t, h)
	b.owner = t
	for _, s := range scenarios { // the process of the first scenario must have what a later one needs
		if _, cannot := h.Cannot[s.name]; s.tools && h.place(s) == in && !cannot {
			b.offerTools(t)
		}
	}
	return b
}

// place returns the session in which a scenario runs.
func (h Harness) place(s scenario) place {
	if *apart || slices.Contains(h.Alone, s.name) {
		return alone
	}
	return s.in
}

// can skips a scenario that the agent does not support.
func (h Harness) can(t *testing.T, scenario string) {
	t.Helper()
	if reason, ok := h.Cannot[scenario]; ok {
		t.Skipf("%s cannot: %s", h.Adapter.Name(), reason)
	}
}
