package agenttest

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// steer sends the agent a prompt during the turn of a run, twice, as two workers do one after the
// other.
func (b *bench) steer(t *testing.T, r *run, before int, content string) agent.Steered {
	t.Helper()
	require.NotEmpty(t, content, "the harness has no prompt for this scenario and does not say that it cannot")
	s := agent.Steered{PromptID: session.NewID(session.PromptPrefix), Author: "grace"}
	data, err := b.Adapter.(agent.Steerer).Steer(agent.PromptInput{
		RunID: r.context.RunID, PromptID: s.PromptID, Content: content, Author: s.Author, At: time.Now(),
	})
	require.NoError(t, err)
	if r.expected == nil {
		r.expected = map[int][]agent.Steered{}
	}
	r.expected[before] = append(r.expected[before], s)
	for range 2 {
		require.True(t, r.live.(agent.Expecter).Expect(s))
		b.process.write(t, data)
	}
	return s
}

// steerer skips the test of an agent that takes no prompts in a running turn.
func (b *bench) steerer(t *testing.T) {
	t.Helper()
	if _, ok := b.Adapter.(agent.Steerer); !ok {
		t.Skip(b.Adapter.Name() + " does not declare " + agent.CapabilitySteer)
	}
}

// acceptsPrompt sends the agent a prompt while its turn runs a tool. The agent must accept it once,
// in the same turn and after the tool.
func acceptsPrompt(t *testing.T, b *bench) {
	b.steerer(t)
	r := b.begin(t, b.Prompts.Steerable)
	b.until(t, r, "a tool", isRunningTool)
	given := b.steer(t, r, len(r.frames), b.Prompts.Steer)
	process := b.process
	b.finish(t, r)
	require.Same(t, process, b.process)
	require.Equal(t, session.OutcomeCompleted, r.end.Outcome, r.end.Reason)
	require.Equal(t, []agent.SteerVerdict{{PromptID: given.PromptID, Taken: true}}, r.steered)
	messages := blocksOf(t, r, conversation.UserMessage)
	require.Len(t, messages, 2)
	require.Equal(t, []string{r.context.PromptID, given.PromptID}, []string{messages[0].PromptID, messages[1].PromptID})
	require.Equal(t, []string{b.Prompts.Steer, given.Author}, []string{messages[1].Content, messages[1].Author})
	blocks := mainBlocks(t, r)
	at := slices.IndexFunc(blocks, func(b conversation.Block) bool { return b.ID == messages[1].ID })
	result := slices.IndexFunc(blocks, func(b conversation.Block) bool { return b.Type == conversation.ToolResult })
	answer := slices.IndexFunc(blocks[at:], func(b conversation.Block) bool { return b.Type == conversation.AssistantText })
	require.Less(t, result, at, "the tool was not interrupted")
	require.Positive(t, answer, "the agent answers")
	after := b.turn(t, b.Prompts.Hello)
	require.Equal(t, session.OutcomeCompleted, after.end.Outcome, after.end.Reason)
	b.check(t)
}

// keepsLatePrompt sends the agent a prompt after it has printed the end of its turn. The turn must
// not end before the agent has accepted the prompt, or declined it without a trace.
func keepsLatePrompt(t *testing.T, b *bench) {
	b.steerer(t)
	r := b.begin(t, b.Prompts.Hello)
	early, err := b.Adapter.NewTranslator(r.context, nil)
	require.NoError(t, err)
	var given *agent.Steered
	b.before = func(f agent.Frame) {
		got, err := early.Translate(f)
		require.NoError(t, err)
		if got.End != nil && given == nil {
			given = new(b.steer(t, r, int(f.No), b.Prompts.Steer))
		}
	}
	b.finish(t, r)
	b.before = nil
	require.NotNil(t, given)
	require.Equal(t, session.OutcomeCompleted, r.end.Outcome, r.end.Reason)
	require.Len(t, r.steered, 1)
	messages := blocksOf(t, r, conversation.UserMessage)
	if r.steered[0].Taken {
		require.Len(t, messages, 2)
		require.Equal(t, given.PromptID, messages[1].PromptID)
		require.Len(t, blocksOf(t, r, conversation.AssistantText), 2, "it was worked on in this turn")
	} else {
		require.Len(t, messages, 1)
	}
	after := b.turn(t, b.Prompts.Hello)
	require.Equal(t, session.OutcomeCompleted, after.end.Outcome, after.end.Reason)
	require.Len(t, blocksOf(t, after, conversation.UserMessage), 1, "nothing is left of the turn before")
	b.check(t)
}

// diesWithAPrompt kills the agent while it has a prompt for its turn that it has not accepted,
// because it is busy.
func diesWithAPrompt(t *testing.T, b *bench) {
	b.steerer(t)
	b.turn(t, b.Prompts.Hello)
	r := b.begin(t, b.Prompts.LongTool)
	b.until(t, r, "a tool", isRunningTool)
	b.steer(t, r, len(r.frames), b.Prompts.Steer)
	b.kill(t)
	b.finish(t, r)
	require.Equal(t, session.OutcomeFailed, r.end.Outcome)
	require.Equal(t, session.ReasonAgentCrashed, r.end.Reason)
	require.Empty(t, r.steered)
	require.Len(t, blocksOf(t, r, conversation.UserMessage), 1)
	b.recalls(t)
	b.check(t)
}
