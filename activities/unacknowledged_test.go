package activities_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/demo"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// hesitant is an agent that must be asked to continue in the middle of its turn.
type hesitant struct {
	agent.Adapter
	continues atomic.Int64 // the number of requests to continue
	lost      bool         // Translation.Input never arrives
}

func (h *hesitant) Launch(agent.LaunchInput) (agent.Launch, error) {
	script := `read -r prompt; echo hesitates; read -r word; echo "heard $word"; read -r word; echo "and $word"`
	return agent.Launch{Argv: []string{"sh", "-c", script}, Dir: "/workspace", Key: "hesitant"}, nil
}

func (h *hesitant) Prompt(agent.PromptInput) ([]byte, error) { return []byte("prompt\n"), nil }

func (h *hesitant) NewTranslator(_ agent.RunContext, state []byte) (agent.Translator, error) {
	return &hesitation{hesitant: h, seen: state}, nil
}

type hesitation struct {
	*hesitant
	seen []byte // h: it hesitates; g: it has continued
}

func (h *hesitation) Translate(f agent.Frame) (t agent.Translation, err error) {
	switch string(f.Data) {
	case "hesitates":
		h.seen = append(h.seen, 'h')
		h.continues.Add(1)
		if !h.lost {
			t.Input = []byte("go\n")
		}
	case "heard go":
		h.seen = append(h.seen, 'g')
		t.End = &agent.TurnEnd{Outcome: session.OutcomeCompleted}
	}
	return t, nil
}

func (h *hesitation) State() ([]byte, error) { return slices.Clone(h.seen), nil }

func (h *hesitation) Cut(time.Time) []conversation.Event { return nil }

func (h *hesitation) Unacknowledged() []byte {
	if string(h.seen) == "h" {
		return []byte("go\n")
	}
	return nil
}

// TestUnacknowledgedInputIsResent breaks the link after the commit of the frame that asked. The
// input written to the link is lost.
func TestUnacknowledgedInputIsResent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	h := &hesitant{Adapter: demo.New(), lost: true}
	b.config.Agents = agent.NewRegistry(h)
	b.build()
	in := b.claim(t, b.create(t), "anything")
	turn := b.begin(t, in)
	require.Eventually(t, func() bool { return b.run(t, in.RunID).LastFrame >= 0 }, waitLimit, 5*time.Millisecond, "the frame that asks is not committed")
	turn.cancel()
	_, err := turn.wait(t)
	require.Error(t, err)
	result, err := b.begin(t, in).wait(t)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, result.Outcome)
	require.EqualValues(t, 1, h.continues.Load(), "no frame asks twice")
}
