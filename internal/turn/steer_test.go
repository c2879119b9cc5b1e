package turn_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/demo/demoformat"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/turn"
)

// steers has the prompts that the runner has received for the running turn, and the output of its
// agent.
type steers struct {
	mu     sync.Mutex
	frames []string
	sent   []string // ids, including repetitions
}

func (s *steers) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.frames
}

func (s *steers) ids() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

// give accepts a prompt for the running turn once, like a runner. It returns the position of the
// agent's further output.
func (s *steers) give(m *runner.Steer, says []string) (from int64, given bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, m.ID)
	if len(s.sent) > 1 {
		return 0, false
	}
	var l demoformat.Line
	_ = json.Unmarshal(m.Data, &l)
	from = int64(len(s.frames))
	for _, line := range says {
		s.frames = append(s.frames, strings.NewReplacer("STEER", l.UUID, "PROMPT", l.PromptID).Replace(line))
	}
	return from, true
}

// changes wakes its watchers.
type changes struct {
	mu      sync.Mutex
	watched map[string]chan struct{}
}

func (c *changes) Watch(topic string) (changed <-chan struct{}, stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wake := make(chan struct{}, 1)
	c.watched[topic] = wake
	return wake, func() {}
}

func (c *changes) wake(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if wake := c.watched[topic]; wake != nil {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// steer submits a prompt of the mode steer once the turn has output.
func (st *stage) steer(t *testing.T) session.Prompt {
	t.Helper()
	require.Eventually(t, func() bool { return len(st.events(t, "block_complete")) > 0 }, waitLimit, time.Millisecond)
	return st.submitSteer(t)
}

func (st *stage) submitSteer(t *testing.T) session.Prompt {
	t.Helper()
	p, _, _, err := st.db.PromptSubmit(t.Context(), session.Prompt{
		ID: session.NewID(session.PromptPrefix), SessionID: st.in.SessionID, Content: "and this", Mode: session.Steer,
	})
	require.NoError(t, err)
	st.changes.wake(run.SteerTopic(st.in.SessionID))
	return p
}

// ended ends the run as its attempt would, and returns the prompt afterwards.
func (st *stage) ended(t *testing.T, in turn.Request, result *turn.Result, promptID string) session.Prompt {
	t.Helper()
	require.NotNil(t, result)
	require.NotNil(t, result.End)
	require.Equal(t, session.OutcomeCompleted, result.End.Outcome)
	_, err := st.db.RunEnd(t.Context(), run.Ending{RunID: in.RunID, Token: in.Token, Outcome: result.End.Outcome})
	require.NoError(t, err)
	p, err := st.db.PromptGet(t.Context(), st.in.SessionID, promptID)
	require.NoError(t, err)
	return p
}

// taken is the demo agent's output when it accepts a prompt in its turn and ends the turn.
var taken = []string{
	`{"type":"user","uuid":"STEER","runId":"RUN","promptId":"PROMPT","content":"and this"}`, says("two"), endsTurn,
}

const declined = `{"type":"declined","uuid":"STEER","runId":"RUN"}`

// run runs an attempt.
func (st *stage) run(t *testing.T, x *turn.Executor, in turn.Request) (wait func() (*turn.Result, error)) {
	t.Helper()
	var result *turn.Result
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		result, err = x.Run(t.Context(), in, &progress{})
	}()
	t.Cleanup(func() { <-done })
	return func() (*turn.Result, error) {
		<-done
		return result, err
	}
}

// TestPromptIsGivenToRunningTurn checks that an accepted prompt ends with the turn.
func TestPromptIsGivenToRunningTurn(t *testing.T) {
	t.Parallel()
	st := setup(t, script{frames: []string{says("one")}, steered: taken})
	in := st.take(t)
	wait := st.run(t, st.executor, in)
	p := st.steer(t)
	require.False(t, p.Interrupts)
	result, err := wait()
	require.NoError(t, err)
	require.Equal(t, []string{p.ID}, st.steers.ids())
	p = st.ended(t, in, result, p.ID)
	require.Equal(t, []any{session.PromptCompleted, session.ReasonJoined, st.in.RunID}, []any{p.Status, p.Reason, p.RunID})
	require.Len(t, st.events(t, "block_complete"), 3)
}

// TestDeclinedPromptKeepsPosition sends a prompt that arrives after the agent has ended the turn.
func TestDeclinedPromptKeepsPosition(t *testing.T) {
	t.Parallel()
	st := setup(t, script{frames: []string{says("one")}, steered: []string{endsTurn, declined}})
	in := st.take(t)
	wait := st.run(t, st.executor, in)
	p := st.steer(t)
	result, err := wait()
	require.NoError(t, err)
	p = st.ended(t, in, result, p.ID)
	require.Equal(t, []any{session.PromptQueued, "", ""}, []any{p.Status, p.RunID, p.JoinedTo})
	require.Negative(t, p.Rank)
}

// TestPromptIsTakenOnceAcrossLostWorkers loses a worker after it has read that the agent accepted
// the prompt, before or after the commit. The next worker sends the prompt again, and does not end
// the turn without it.
func TestPromptIsTakenOnceAcrossLostWorkers(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"before the commit": true, "after it": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := setup(t, script{frames: []string{says("one")}, steered: taken})
			lost := st.executor.Config
			lost.Log = losing{Log: lost.Log, frame: 1, before: before}
			wait := st.run(t, turn.New(lost), st.take(t))
			p := st.steer(t)
			_, err := wait()
			require.ErrorIs(t, err, errLost)
			in := st.take(t)
			result, err := st.executor.Run(t.Context(), in, &progress{})
			require.NoError(t, err)
			p = st.ended(t, in, result, p.ID)
			require.Equal(t, []any{session.PromptCompleted, session.ReasonJoined}, []any{p.Status, p.Reason})
			require.Len(t, st.events(t, "block_complete"), 3)
			require.LessOrEqual(t, len(st.steers.ids()), 2)
		})
	}
}

// TestTakenButUnsentPromptIsSent checks that the next worker sends the prompt before it reads the
// end of the turn, which the agent has already printed.
func TestTakenButUnsentPromptIsSent(t *testing.T) {
	t.Parallel()
	st := setup(t, script{frames: []string{says("one"), endsTurn}, steered: []string{declined}})
	in := st.take(t)
	require.NoError(t, st.executor.Log.Append(t.Context(), eventlog.Append{
		SessionID: in.SessionID, RunID: in.RunID, Generation: 1, Token: in.Token, State: []byte(`{}`), Steers: true,
	}))
	p := st.submitSteer(t)
	prompts, err := st.db.SteersTake(t.Context(), run.SteerTake{RunID: in.RunID, Token: in.Token, More: true})
	require.NoError(t, err)
	require.Len(t, prompts, 1)
	require.Empty(t, st.steers.ids())

	in = st.take(t)
	result, err := st.executor.Run(t.Context(), in, &progress{})
	require.NoError(t, err)
	require.Equal(t, []string{p.ID}, st.steers.ids())
	p = st.ended(t, in, result, p.ID)
	require.Equal(t, session.PromptQueued, p.Status)
}

// TestEarlierRunnerIsGivenNoPrompts checks that the turn is interrupted instead.
func TestEarlierRunnerIsGivenNoPrompts(t *testing.T) {
	t.Parallel()
	st := setup(t, script{frames: []string{says("one")}, noSteers: true})
	st.run(t, st.executor, st.take(t))
	p := st.steer(t)
	s, err := st.db.SessionGet(t.Context(), st.in.SessionID)
	require.NoError(t, err)
	require.Len(t, s.Pending, 1)
	require.Equal(t, session.PromptQueued, p.Status)
	require.Empty(t, st.steers.ids())
}
