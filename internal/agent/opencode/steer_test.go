package opencode_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/scripted"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// steer adds a prompt to the running turn.
func (p *cli) steer(t *testing.T, runID, promptID, content string) {
	t.Helper()
	line, err := opencode.New().Steer(agent.PromptInput{RunID: runID, PromptID: promptID, Content: content})
	require.NoError(t, err)
	p.Write(t, line)
}

// when calls a function once, at the first event for which found returns true, and lets the turn
// continue.
func when(found func(conversation.Event) bool, do func()) func(conversation.Event) bool {
	done := false
	return func(e conversation.Event) bool {
		if !done && found(e) {
			done = true
			do()
		}
		return false
	}
}

func isDelta(e conversation.Event) bool { return e.Type == conversation.EventTextDelta }

func isAtWork(e conversation.Event) bool {
	d, ok := e.Data.(conversation.BlockUpdate)
	return ok && d.Updates.Status == conversation.Running
}

// stored waits until the saved sessions contain a text.
func (p *cli) stored(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, name := range p.files(t) {
			if data, err := os.ReadFile(name); err == nil && strings.Contains(string(data), text) {
				return true
			}
		}
		return false
	}, waitLimit, 20*time.Millisecond)
}

// lastPrompts returns the prompts in the model's last request.
func (p *cli) lastPrompts() string {
	requests := p.server.Requests()
	return strings.Join(requests[len(requests)-1].Prompts, "\n")
}

// TestPromptsForRunningTurn adds prompts to turns of one session. They appear where the agent accepts
// them; those that it has not accepted are not sent to the model after an interrupt or a kill.
func TestPromptsForRunningTurn(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	p := newProgram(t, map[string][]modelserver.Step{
		"hello": {{Text: "Hello."}},
		"cats":  {{Text: "Cats it is."}},
		"slow":  {{Text: "word after word", Hold: hold}},
		"wait":  {{Text: "This takes long.", Calls: []modelserver.Call{bash(scripted.UntilKilled)}}, {Text: "It took long."}},
	})
	p.begin(t, agent.LaunchInput{})
	p.acceptsPrompts(t, hold)
	p.returnsPromptsWhenInterrupted(t)
	p.returnsPromptsWhenKilled(t)
	p.begin(t, agent.LaunchInput{Resume: true}) // with its database, which contains the prompt
	require.Equal(t, session.OutcomeCompleted, p.turn(t, "{{hello}} to you").End.Outcome)
	require.NotContains(t, p.lastPrompts(), "mice")
	p.agree(t)
	p.Close(t)
}

// acceptsPrompts adds two prompts while the model answers, which continues when hold is closed.
func (p *cli) acceptsPrompts(t *testing.T, hold chan struct{}) {
	run := agent.RunContext{RunID: session.NewID(session.RunPrefix)}
	r := p.run(t, run, "{{slow}} please", when(isDelta, func() {
		p.steer(t, run.RunID, "one", "think of dogs")
		p.steer(t, run.RunID, "two", "{{cats}} rather")
		p.stored(t, "{{cats}}")
		close(hold)
	}))
	require.Equal(t, session.OutcomeCompleted, r.End.Outcome, r.End.Reason)
	var got []string
	for _, b := range r.Blocks() {
		got = append(got, string(b.Type)+" "+strings.Fields(b.Content)[0])
	}
	require.Equal(t, []string{"user_message {{slow}}", "assistant_text word", "user_message think", "user_message {{cats}}", "assistant_text Cats"}, got)
	require.Contains(t, p.lastPrompts(), "think of dogs")
	require.Contains(t, p.lastPrompts(), "{{cats}} rather")
	p.agree(t)
}

func (p *cli) returnsPromptsWhenInterrupted(t *testing.T) {
	run := agent.RunContext{RunID: session.NewID(session.RunPrefix)}
	r := p.run(t, run, "{{wait}} for it", when(isAtWork, func() {
		p.steer(t, run.RunID, "three", "think of birds")
		p.stored(t, "birds")
		p.Write(t, opencode.New().Interrupt(run.RunID).Stdin)
	}))
	require.Equal(t, session.OutcomeCancelled, r.End.Outcome, r.End.Reason)
	require.Len(t, r.All(conversation.UserMessage), 1)
	p.agree(t)
	require.Equal(t, session.OutcomeCompleted, p.turn(t, "{{hello}} to you").End.Outcome)
	require.NotContains(t, p.lastPrompts(), "birds")
	p.agree(t)
}

// returnsPromptsWhenKilled kills the bridge, and its agent with it.
func (p *cli) returnsPromptsWhenKilled(t *testing.T) {
	run := agent.RunContext{RunID: session.NewID(session.RunPrefix)}
	p.run(t, run, "{{wait}} for it", func(e conversation.Event) bool {
		if !isAtWork(e) {
			return false
		}
		p.steer(t, run.RunID, "four", "think of mice")
		p.stored(t, "mice")
		return true
	})
	require.NoError(t, p.Cmd.Process.Kill())
	p.Wait(t)
	p.agree(t)
}
