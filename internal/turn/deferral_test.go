package turn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// TestFramesWithoutEventsAreCommittedWithNext checks that such frames cause no commit, and delay
// nothing that a reader or the next run needs.
func TestFramesWithoutEventsAreCommittedWithNext(t *testing.T) {
	t.Parallel()
	silent, word, repeat, opens := "", "word", "prompt", "opens"
	says, closes, usage, tool := "says", "closes", "usage", "tool"
	for name, c := range map[string]struct {
		first  bool // the first frame of the session
		closed bool // the runner has no more frames
		lines  []string
		want   []int64 // the newest frame after each line
	}{
		"silent frames wait":                        {lines: []string{silent, silent, word, silent, silent}, want: []int64{-1, -1, 2, 2, 2}},
		"the session has no conversation yet":       {first: true, lines: []string{silent, silent, word}, want: []int64{0, 1, 2}},
		"the journal of an interrupted run is read": {closed: true, lines: []string{silent, word}, want: []int64{0, 1}},
		"the repeated prompt waits":                 {lines: []string{silent, repeat, silent, word}, want: []int64{-1, -1, -1, 3}},
		"an empty block of text waits":              {lines: []string{repeat, opens, word, opens, word}, want: []int64{-1, -1, 2, 2, 4}},
		"not with other events":                     {lines: []string{repeat, word, repeat, word}, want: []int64{-1, 1, 1, 3}},
		"events do not":                             {lines: []string{word, word}, want: []int64{0, 1}},
		"the end of a block with known text waits":  {lines: []string{opens, says, closes, silent, usage, word}, want: []int64{-1, 1, 1, 1, 1, 5}},
		"the next block is committed with it":       {lines: []string{says, closes, usage, tool}, want: []int64{0, 0, 0, 3}},
		"a block whose text is new does not":        {lines: []string{opens, closes, says, closes}, want: []int64{-1, 1, 2, 2}},
		"a tool that has ended does not":            {lines: []string{says, tool, closes}, want: []int64{0, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // no time passes
				a, log := newDeferring(!c.first)
				a.closed, a.lastFrame = c.closed, int64(len(c.lines))-1
				for i, line := range c.lines {
					require.NoError(t, a.commit(t.Context(), nil, []runner.Message{frameOf(int64(i), line)}))
					require.Equal(t, c.want[i], a.frame, "after line %d", i)
				}
				require.Equal(t, log.last, a.frame)
				for _, add := range log.appends {
					var state turnState
					require.NoError(t, json.Unmarshal(add.State, &state))
					require.Equal(t, []byte{byte(add.LastFrame)}, state.Translator, "the state is that after the frame")
				}
			})
		})
	}
}

// TestFramesWithoutEventsWaitForSecond checks that such frames wait for at most a second, whether
// or not other frames follow.
func TestFramesWithoutEventsWaitForSecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, _ := newDeferring(true)
		require.NoError(t, a.commit(t.Context(), nil, []runner.Message{frameOf(0, "")}))
		require.EqualValues(t, -1, a.frame)
		require.NoError(t, a.commit(t.Context(), nil, nil), "nothing has come for a while")
		require.EqualValues(t, 0, a.frame)
		require.NoError(t, a.commit(t.Context(), nil, []runner.Message{frameOf(1, "")}))
		require.EqualValues(t, 0, a.frame)
		<-time.After(maxDeferral)
		require.NoError(t, a.commit(t.Context(), nil, []runner.Message{frameOf(2, "")}))
		require.EqualValues(t, 2, a.frame)
	})
}

// TestPreludeWaitsForMilliseconds checks that a prelude is committed together with the events that
// follow, or alone if none follow.
func TestPreludeWaitsForMilliseconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, log := newDeferring(true)
		link := &turnLink{inbox: newInbox(), room: semaphore.NewWeighted(1), share: semaphore.NewWeighted(1)}
		require.True(t, link.inbox.put(t.Context(), heldMessage{message: frameOf(0, "prompt")}))
		began := time.Now()
		require.NoError(t, a.follow(t.Context(), link, func([]runner.Message) bool { return a.frame >= 0 }, func() {}))
		require.Equal(t, maxPreludeDeferral, time.Since(began))
		require.Len(t, log.appends, 1)
		require.Len(t, log.appends[0].Events, 1)
	})
}

// TestConclusionWaitsForFiftyMilliseconds checks that the end of a block whose text readers have is
// committed together with the events that follow, or alone if none follow, and that a prelude after
// it does not wait longer for that.
func TestConclusionWaitsForFiftyMilliseconds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		line string
		want time.Duration
	}{
		"alone":          {want: maxConclusionDeferral},
		"with the usage": {line: "usage", want: maxConclusionDeferral},
		"with a prelude": {line: "opens", want: maxPreludeDeferral},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, log := newDeferring(true)
				link := &turnLink{inbox: newInbox(), room: semaphore.NewWeighted(1), share: semaphore.NewWeighted(1)}
				require.NoError(t, a.commit(t.Context(), nil, []runner.Message{frameOf(0, "says")}))
				require.EqualValues(t, 0, a.frame)
				last := int64(1)
				messages := []runner.Message{frameOf(1, "closes")}
				if c.line != "" {
					messages, last = append(messages, frameOf(2, c.line)), 2
				}
				began := time.Now()
				require.NoError(t, a.commit(t.Context(), nil, messages))
				require.NoError(t, a.follow(t.Context(), link, func([]runner.Message) bool { return a.frame >= last }, func() {}))
				require.Equal(t, c.want, time.Since(began))
				require.Len(t, log.appends, 2)
			})
		})
	}
}

// TestDeferredEventsSurviveEndOfLink checks that events that wait for others are committed when the
// link or the attempt ends.
func TestDeferredEventsSurviveEndOfLink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, log := newDeferring(true)
		link := &turnLink{inbox: newInbox(), room: semaphore.NewWeighted(1), share: semaphore.NewWeighted(1)}
		require.NoError(t, a.commit(t.Context(), nil, []runner.Message{frameOf(0, "says")}))
		require.NoError(t, a.commit(t.Context(), nil, []runner.Message{frameOf(1, "closes")}))
		require.EqualValues(t, 0, a.frame)
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("the session hibernates")
		cancel(cause)
		err := a.follow(ctx, link, func([]runner.Message) bool { return false }, func() {})
		require.ErrorIs(t, err, cause)
		require.EqualValues(t, 1, a.frame)
		require.EqualValues(t, 1, log.last)
	})
}

// TestEndOfTurnIsStoredWithOutcome checks that the last frames of a turn are left to the caller, who
// stores them with the outcome of the run, unless readers wait for them, or an earlier attempt has
// failed.
func TestEndOfTurnIsStoredWithOutcome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		attempt   int64
		lines     []string
		committed int64 // the newest committed frame
		last      int   // events that are left to the caller; -1 for no append
	}{
		"conclusions":                      {lines: []string{"says", "closes", "usage", "end"}, committed: 0, last: 2},
		"no events":                        {lines: []string{"says", "end"}, committed: 0, last: 0},
		"readers wait for the events":      {lines: []string{"says", "closes tool end"}, committed: 1, last: -1},
		"readers wait for the text":        {lines: []string{"says", "says end"}, committed: 1, last: -1},
		"an earlier attempt has failed":    {attempt: 2, lines: []string{"says", "closes", "usage", "end"}, committed: 3, last: -1},
		"frames after the end are ignored": {lines: []string{"says", "closes", "end", "says"}, committed: 0, last: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, log := newDeferring(true)
				a.start.Run.Attempt = cmp.Or(c.attempt, 1)
				for i, line := range c.lines {
					require.NoError(t, a.commit(t.Context(), nil, []runner.Message{frameOf(int64(i), line)}))
				}
				require.Equal(t, session.OutcomeCompleted, a.ended().Outcome)
				require.NoError(t, a.giveLast(t.Context()))
				require.Equal(t, session.OutcomeCompleted, a.end.Outcome)
				require.Equal(t, c.committed, log.last)
				if c.last < 0 {
					require.Nil(t, a.lastAppend)
					return
				}
				require.Len(t, a.lastAppend.Events, c.last)
				require.Equal(t, a.frame, a.lastAppend.LastFrame)
			})
		})
	}
}

// TestDeferredEndIsCommitted checks that the end of a turn is in the log after fifty milliseconds, and
// when the attempt fails before it is over.
func TestDeferredEndIsCommitted(t *testing.T) {
	t.Parallel()
	for name, events := range map[string][]string{"with events": {"says", "closes", "end"}, "without": {"says", "end"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, log := newDeferring(true)
				for i, line := range events {
					require.NoError(t, a.commit(t.Context(), nil, []runner.Message{frameOf(int64(i), line)}))
				}
				require.Nil(t, a.end)
				a.appendDeferred(t.Context())
				require.NotNil(t, a.end)
				require.EqualValues(t, len(events)-1, log.last)
				require.NoError(t, a.giveLast(t.Context()))
				require.Nil(t, a.lastAppend)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // the runner sends the rest of the transcripts slowly
		a, log := newDeferring(true)
		link := &turnLink{inbox: newInbox(), room: semaphore.NewWeighted(1), share: semaphore.NewWeighted(1)}
		for i, line := range []string{"says", "closes", "end"} {
			require.NoError(t, a.commit(t.Context(), nil, []runner.Message{frameOf(int64(i), line)}))
		}
		began := time.Now()
		require.NoError(t, a.follow(t.Context(), link, func([]runner.Message) bool { return a.end != nil }, func() {}))
		require.Equal(t, maxConclusionDeferral, time.Since(began))
		require.EqualValues(t, 2, log.last)
	})
}

// TestEndWithHeldTextIsCommitted checks that the last frames are not left to the caller if they have
// text, for example a suffix that may have begun a secret.
func TestEndWithHeldTextIsCommitted(t *testing.T) {
	t.Parallel()
	a, log := newDeferring(true)
	require.NoError(t, a.commit(t.Context(), nil, []runner.Message{frameOf(0, "says")}))
	require.NoError(t, a.commit(t.Context(), nil, []runner.Message{frameOf(1, "closes"), frameOf(2, "end")}))
	a.deferred.add.Events = append(a.deferred.add.Events, eventlog.Draft{
		Type: string(conversation.EventTextDelta), Data: json.RawMessage(`{"blockId":"a","delta":"held"}`), Frame: 2, N: 1,
	})
	require.NoError(t, a.giveLast(t.Context()))
	require.Nil(t, a.lastAppend)
	require.NotNil(t, a.end)
	require.EqualValues(t, 2, log.last)
}

// TestEndDoesNotWaitForSlowQuery checks that the end of a turn is committed if the last query for
// refused connections takes longer than the end may wait.
func TestEndDoesNotWaitForSlowQuery(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		takes     time.Duration
		committed int64
	}{"slow": {time.Second, 2}, "fast": {time.Millisecond, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, log := newDeferring(true)
				for i, line := range []string{"says", "closes", "end"} {
					require.NoError(t, a.commit(t.Context(), nil, []runner.Message{frameOf(int64(i), line)}))
				}
				done := make(chan struct{})
				began := time.Now()
				time.AfterFunc(c.takes, func() { close(done) })
				a.awaitWatch(t.Context(), done)
				require.Equal(t, c.takes, time.Since(began))
				require.Equal(t, c.committed, log.last)
			})
		})
	}
}

func frameOf(no int64, line string) *runner.Frame {
	return &runner.Frame{No: no, Stream: runner.Stdout, At: time.Now(), Data: []byte(line)}
}

func newDeferring(resume bool) (*attempt, *recordedLog) {
	log := &recordedLog{last: -1}
	a := &attempt{
		Executor: New(Config{Log: log}), start: run.Start{Resume: resume}, frame: -1, suspicion: suspicion{until: -1},
		progress: noProgress{}, remasked: time.Now(),
	}
	a.convert = &convert{translator: &counting{}, limits: &conversation.Limiter{}}
	return a, log
}

type noProgress struct{}

func (noProgress) Made()           {}
func (noProgress) Waiting()        {}
func (noProgress) IsWaiting() bool { return false }

// recordedLog records the appends.
type recordedLog struct {
	appends []eventlog.Append
	last    int64
}

func (l *recordedLog) Append(_ context.Context, a eventlog.Append) error {
	l.appends, l.last = append(l.appends, a), a.LastFrame
	return nil
}

// counting makes events of the words of a line, and ends the turn at "end". Its state is the
// last frame.
type counting struct{ frame int64 }

func (c *counting) Translate(f agent.Frame) (all agent.Translation, err error) {
	c.frame = f.No
	for _, word := range strings.Split(string(f.Data), " ") {
		one := translationOf(f, word)
		all.Events = append(all.Events, one.Events...)
		all.End = cmp.Or(all.End, one.End)
	}
	return all, nil
}

func translationOf(f agent.Frame, word string) (translation agent.Translation) {
	switch word {
	case "":
	case "prompt":
		block := conversation.Block{ID: "p", Type: conversation.UserMessage, Status: conversation.Complete}
		translation.Events = []conversation.Event{{Type: conversation.EventBlockComplete, At: f.At, Data: conversation.BlockComplete{Block: block}}}
	case "opens":
		block := conversation.Block{ID: "a", Type: conversation.AssistantText, Status: conversation.Streaming}
		translation.Events = []conversation.Event{{Type: conversation.EventBlockStart, At: f.At, Data: conversation.BlockStart{Block: block}}}
	case "says":
		translation.Events = []conversation.Event{{Type: conversation.EventTextDelta, At: f.At, Data: conversation.TextDelta{BlockID: "a", Delta: "word"}}}
	case "closes":
		block := conversation.Block{ID: "a", Type: conversation.AssistantText, Status: conversation.Complete, Content: "word"}
		translation.Events = []conversation.Event{{Type: conversation.EventBlockComplete, At: f.At, Data: conversation.BlockComplete{Block: block}}}
	case "usage":
		translation.Events = []conversation.Event{{Type: conversation.EventMetadataUpdate, At: f.At, Data: conversation.MetadataUpdate{}}}
	case "tool":
		block := conversation.Block{ID: "t", Type: conversation.ToolUse, Status: conversation.Complete}
		translation.Events = []conversation.Event{{Type: conversation.EventBlockComplete, At: f.At, Data: conversation.BlockComplete{Block: block}}}
	case "end":
		translation.End = &agent.TurnEnd{Outcome: session.OutcomeCompleted}
	default:
		translation.Events = []conversation.Event{{Type: conversation.EventTitle, At: f.At, Data: conversation.Title{Title: word}}}
	}
	return translation
}

func (c *counting) State() ([]byte, error) { return []byte{byte(c.frame)}, nil }

func (c *counting) Cut(time.Time) []conversation.Event { return nil }
