package turn

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/catalog"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/question"
)

// openCalls has, for each agent, a line that starts a call which never ends. %d is the number of
// the call, %s its input.
var openCalls = map[string]string{
	"demo":       `{"type":"tool_use","uuid":"call%05d","name":"run","input":{"x":"%s"}}`,
	"claude-sdk": `{"type":"assistant","uuid":"line%[1]d","session_id":"s","message":{"id":"msg%[1]d","role":"assistant","content":[{"type":"tool_use","id":"call%05[1]d","name":"Bash","input":{"x":"%[2]s"}}]}}`,
	"codex":      `{"method":"item/started","params":{"threadId":"t","turnId":"u","item":{"type":"commandExecution","id":"call%05d","command":"%s","cwd":"/","status":"inProgress"}}}`,
	"opencode":   `{"id":"e","type":"message.part.updated","properties":{"part":{"id":"call%05d","sessionID":"s","messageID":"m","type":"tool","callID":"c","tool":"bash","state":{"status":"running","input":{"x":"%s"}}}}}`,
	"gemini-cli": `{"type":"tool_use","timestamp":"2026-01-02T03:04:05Z","tool_name":"run","tool_id":"call%05d","parameters":{"x":"%s"}}`,
	"acp":        `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"call%05d","title":"run","status":"in_progress","rawInput":{"x":"%s"}}}}`,
}

// beginnings has, for each agent, the lines that precede those calls.
var beginnings = map[string][]string{
	"codex":    {`{"method":"turn/started","params":{"threadId":"t","turn":{"id":"u"}}}`},
	"opencode": {`{"id":"e","type":"message.updated","properties":{"info":{"id":"m","sessionID":"s","role":"assistant","time":{"created":1}}}}`},
}

// TestUnendedCallsAreClosed has every agent start calls that never end. The state of the turn must
// stay small, and at the end every block must be closed, including blocks beyond the byte limit of
// a turn.
func TestUnendedCallsAreClosed(t *testing.T) {
	t.Parallel()
	for _, d := range catalog.Agents().Describe() {
		for _, size := range []struct {
			name        string
			calls, size int
		}{{"many", 3000, 10}, {"large", 64, 256 << 10}} {
			t.Run(d.Name+"/"+size.name, func(t *testing.T) {
				t.Parallel()
				line, ok := openCalls[d.Name]
				require.True(t, ok, "a hostile stream of %s", d.Name)
				adapter, err := catalog.Agents().Get(d.Name)
				require.NoError(t, err)
				translator, err := adapter.NewTranslator(agent.RunContext{}, nil)
				require.NoError(t, err)
				limits := &conversation.Limiter{Bytes: conversation.MaxTurnBytes - 8<<20}
				c := &convert{translator: translator, limits: limits}
				var folded conversation.Folder
				fold := func(events []eventlog.Draft) {
					seen := map[[2]int64]bool{}
					for _, e := range events {
						place := [2]int64{e.Frame, int64(e.N)}
						require.False(t, seen[place], "two events at %v", place)
						seen[place] = true
						require.NoError(t, folded.Apply(conversation.EventType(e.Type), e.ConversationID, e.Data))
					}
				}
				at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
				lines := beginnings[d.Name]
				input := strings.Repeat("x", size.size)
				for i := range size.calls {
					lines = append(lines, fmt.Sprintf(line, i, input))
				}
				for i, l := range lines {
					frame := int64(i)
					translated, err := c.translate(agent.Frame{No: frame, Stream: agent.Stdout, At: at, Data: []byte(l)})
					require.NoError(t, err)
					events := translated.events
					if i%10 == 0 { // a commit
						var state []byte
						state, events, err = c.encodeState(nil, events, frame, at)
						require.NoError(t, err)
						require.LessOrEqual(t, len(state), maxState)
						if size.name == "many" {
							require.Less(t, len(state), 512<<10)
						}
					}
					fold(events)
				}
				events, err := c.drafts(translator.Cut(at), int64(len(lines)))
				require.NoError(t, err)
				fold(events)
				shown := 0
				for _, thread := range folded.Conversation().Threads {
					for _, b := range thread.Blocks {
						require.False(t, b.Status.Open(), "block %s is %s", b.ID, b.Status)
						if strings.HasPrefix(b.ID, "call") {
							shown++
						}
					}
				}
				require.GreaterOrEqual(t, shown, 20, "the calls are shown")
				require.Equal(t, size.name == "large", limits.Full)
			})
		}
	}
}

// TestOversizedStateIsRefused uses a translator whose state exceeds the limit.
func TestOversizedStateIsRefused(t *testing.T) {
	t.Parallel()
	large := largeState(bytes.Repeat([]byte("x"), maxState))
	_, _, err := (&convert{translator: large, limits: &conversation.Limiter{}}).encodeState(nil, nil, 1, time.Now())
	require.Equal(t, Refused, kindOf(err))
	require.ErrorContains(t, err, "at most 8388608 are allowed")
}

type largeState []byte

func (largeState) Translate(agent.Frame) (agent.Translation, error) { return agent.Translation{}, nil }

func (s largeState) State() ([]byte, error) { return s, nil }

func (largeState) Cut(time.Time) []conversation.Event { return nil }

// TestQuestionsAreBounded checks that a question that is too large or exceeds the maximum number is
// rejected without asking a person, and that its content is not kept.
func TestQuestionsAreBounded(t *testing.T) {
	t.Parallel()
	adapter, err := catalog.Agents().Get("claude-sdk")
	require.NoError(t, err)
	turn := &attempt{adapter: adapter, convert: &convert{limits: &conversation.Limiter{}}, permissions: permission.Rules{Default: permission.Ask}}
	small := agent.Question{ID: "1", Kind: agent.Permission, ToolName: "Bash", Input: []byte(`{"command":"ls"}`)}
	large := small
	large.Input = []byte(`{"command":"` + strings.Repeat("x", question.MaxBytes) + `"}`)

	asked := turn.ask([]agent.Question{large, small}, 1)
	require.Equal(t, agent.DecisionReject, asked[0].Decided.Decision)
	require.Contains(t, asked[0].Decided.Message, "at most 1 MiB")
	require.Empty(t, asked[0].Asked.Input)
	require.Nil(t, asked[1].Decided, "people are asked the other")
	require.Equal(t, 1, turn.limits.Asked)

	turn.limits.Asked = question.MaxPerTurn
	asked = turn.ask([]agent.Question{small}, 2)
	require.Equal(t, agent.DecisionReject, asked[0].Decided.Decision)
	require.Contains(t, asked[0].Decided.Message, "1000 times")

	turn.permissions = permission.Rules{Default: permission.Allow}
	asked = turn.ask([]agent.Question{small}, 3)
	require.Equal(t, agent.DecisionOnce, asked[0].Decided.Decision, "allowed calls need no review")
	require.Equal(t, small.Input, asked[0].Asked.Input, "the agent receives its permissions")

	// Questions that a policy answers are bounded as well.
	asked = turn.ask([]agent.Question{large}, 4)
	require.Equal(t, agent.DecisionReject, asked[0].Decided.Decision)
	require.Contains(t, asked[0].Decided.Message, "at most 1 MiB")
	require.Empty(t, asked[0].Asked.Input)
	half := small
	half.Input = []byte(`{"command":"` + strings.Repeat("x", question.MaxBytes/2) + `"}`)
	var allowed, kept int
	for i := range 200 {
		asked = turn.ask([]agent.Question{half}, int64(5+i))
		if kept += len(asked[0].Asked.Input); asked[0].Decided.Decision == agent.DecisionOnce {
			allowed++
		} else {
			require.Contains(t, asked[0].Decided.Message, "64 MiB")
		}
	}
	require.InDelta(t, 127, allowed, 1)
	require.LessOrEqual(t, kept, question.MaxBytesPerTurn)
	turn.permissions = permission.Rules{Default: permission.Deny}
	asked = turn.ask([]agent.Question{large}, 300)
	require.Equal(t, deniedByPolicy, asked[0].Decided.Message)
	require.Empty(t, asked[0].Asked.Input)

	small.ID = strings.Repeat("x", question.MaxIDBytes+1)
	turn.Executor = &Executor{Config: Config{Logger: slog.New(slog.DiscardHandler)}}
	require.Empty(t, turn.ask([]agent.Question{small}, 301))
}
