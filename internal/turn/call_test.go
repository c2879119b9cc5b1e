package turn_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agenttool"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/turn"
)

// calls is a frame with a call of a tool.
func calls(tool, input string) string { return fmt.Sprintf(`CALL{"tool":%q,"input":%s}`, tool, input) }

// answers are what the runner was sent, by frame.
type answers struct {
	mu   sync.Mutex
	sent map[int64][]string
}

func (a *answers) add(frame int64, answer string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sent == nil {
		a.sent = map[int64][]string{}
	}
	a.sent[frame] = append(a.sent[frame], answer)
}

func (a *answers) of(frame int64) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sent[frame]
}

const titled = "has this title now"

// TestACallIsCarriedOutWithItsFrame: its events are in the log, and then the agent has its answer.
func TestACallIsCarriedOutWithItsFrame(t *testing.T) {
	t.Parallel()
	st := setup(t, script{
		frames: []string{
			says("one"), calls("set_title", `{"title":" Tests \n of Xylophone7Quartz "}`), calls("set_title", `{"title":""}`),
			calls("set_title", `{"title":"`+strings.Repeat("x", 201)+`"}`), calls("no_tool", `{}`), "CALL7", ends,
		},
		masks: masks{secret.NewMasker([]secret.Named{{Name: "KEY", Value: secret.NewValue("Xylophone7Quartz")}})},
	})
	result, err := st.executor.Run(t.Context(), st.take(t), &progress{})
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, result.End.Outcome)
	s, err := st.db.SessionGet(t.Context(), st.in.SessionID)
	require.NoError(t, err)
	require.Equal(t, "Tests of [redacted KEY]", s.Title)
	require.Len(t, st.events(t, "title"), 1)
	for frame, want := range map[int64]string{1: titled, 2: "must not be empty", 3: "at most 200", 4: "There is no tool", 5: "is not understood"} {
		require.Len(t, st.answers.of(frame), 1, frame)
		require.Contains(t, st.answers.of(frame)[0], want)
		require.Equal(t, frame != 1, strings.Contains(st.answers.of(frame)[0], `"failed":true`))
	}
}

// losing is a log whose commit of a frame is the last thing that its worker does.
type losing struct {
	turn.Log
	frame  int64
	before bool // the worker is lost before the commit, not after
}

var errLost = errors.New("the worker is lost")

func (l losing) Append(ctx context.Context, a eventlog.Append) error {
	if a.LastFrame < l.frame {
		return l.Log.Append(ctx, a)
	}
	if l.before {
		return errLost
	}
	return errors.Join(l.Log.Append(ctx, a), errLost)
}

// TestACallHappensOnceAcrossLostWorkers: a worker is lost before the frame of a call is committed, or after it and before the
// answer is sent. The next one answers, and the title is set once.
func TestACallHappensOnceAcrossLostWorkers(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"before the commit": true, "before the answer": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := setup(t, script{frames: []string{says("one"), calls("set_title", `{"title":"Once"}`), says("two"), ends}, waiting: []int64{1}})
			whole := st.executor
			lost := whole.Config
			lost.Log = losing{Log: lost.Log, frame: 1, before: before}
			_, err := turn.New(lost).Run(t.Context(), st.take(t), &progress{})
			require.ErrorIs(t, err, errLost)
			require.Empty(t, st.answers.of(1))
			result, err := whole.Run(t.Context(), st.take(t), &progress{})
			require.NoError(t, err)
			require.Equal(t, session.OutcomeCompleted, result.End.Outcome)
			require.Len(t, st.events(t, "title"), 1)
			require.Len(t, st.answers.of(1), 1)
			require.Contains(t, st.answers.of(1)[0], titled)
			require.NotContains(t, st.answers.of(1)[0], "failed")
		})
	}
}

// TestCallsOfATurnAreBounded: those beyond are answered, and change nothing.
func TestCallsOfATurnAreBounded(t *testing.T) {
	t.Parallel()
	var frames []string
	for i := range agenttool.MaxPerTurn + 1 {
		frames = append(frames, calls("set_title", fmt.Sprintf(`{"title":"Title %d"}`, i)))
	}
	st := setup(t, script{frames: append(frames, ends)})
	_, err := st.executor.Run(t.Context(), st.take(t), &progress{})
	require.NoError(t, err)
	require.Len(t, st.events(t, "title"), agenttool.MaxPerTurn)
	require.Contains(t, st.answers.of(agenttool.MaxPerTurn)[0], "which is the limit")
}

// TestAScreenshotIsStoredBeforeItsEvent: like an image in the result of a tool.
func TestAScreenshotIsStoredBeforeItsEvent(t *testing.T) {
	t.Parallel()
	image, secretImage := []byte("\x89PNG\r\n\x1a\nof the page"), []byte("\x89PNG\r\n\x1a\nwith Xylophone7Quartz")
	shot := func(image []byte) string {
		return fmt.Sprintf(`CALL{"tool":"save_screenshot","input":{"path":"a.png","description":"the page"},"image":%q}`, base64.StdEncoding.EncodeToString(image))
	}
	st := setup(t, script{
		frames: []string{shot(image), shot(secretImage), ends},
		masks:  masks{secret.NewMasker([]secret.Named{{Name: "KEY", Value: secret.NewValue("Xylophone7Quartz")}})},
	})
	_, err := st.executor.Run(t.Context(), st.take(t), &progress{})
	require.NoError(t, err)
	events := st.events(t, "screenshot")
	require.Len(t, events, 1)
	var d conversation.Screenshot
	require.NoError(t, json.Unmarshal(events[0].Data, &d))
	require.Equal(t, "the page", d.Description)
	a, err := st.db.AttachmentGet(t.Context(), st.in.SessionID, d.Image.ID)
	require.NoError(t, err)
	require.Equal(t, image, a.Data)
	require.Contains(t, st.answers.of(0)[0], "see the screenshot")
	require.Contains(t, st.answers.of(1)[0], "is not stored")
}

// TestAMessageIsAPromptOnce: also if its worker is lost before the frame is committed. Agents may send a few between two prompts
// of people.
func TestAMessageIsAPromptOnce(t *testing.T) {
	t.Parallel()
	frames := []string{calls("session_message", `{"message":"one"}`)}
	for i := range session.MaxAgentPrompts {
		frames = append(frames, calls("session_message", fmt.Sprintf(`{"message":"message %d"}`, i)))
	}
	st := setup(t, script{frames: append(frames, ends)})
	whole := st.executor
	lost := whole.Config
	lost.Log = losing{Log: lost.Log, before: true}
	_, err := turn.New(lost).Run(t.Context(), st.take(t), &progress{})
	require.ErrorIs(t, err, errLost)
	_, err = whole.Run(t.Context(), st.take(t), &progress{})
	require.NoError(t, err)
	list, _, err := st.db.PromptList(t.Context(), st.in.SessionID, 100, "")
	require.NoError(t, err)
	require.Len(t, list, 1+session.MaxAgentPrompts)
	require.Equal(t, "one", list[1].Content)
	require.Equal(t, "agent:"+st.in.SessionID, list[1].Author)
	require.Equal(t, session.PromptQueued, list[1].Status)
	require.Contains(t, st.answers.of(0)[0], "waits in the queue")
	require.Contains(t, st.answers.of(int64(session.MaxAgentPrompts))[0], "which is the limit")
	require.NoError(t, st.db.PromptByAgent(t.Context(), session.Prompt{ID: list[1].ID, SessionID: st.in.SessionID, Content: "again"}), "it is stored")

	p, _, _, err := st.db.PromptSubmit(t.Context(), session.Prompt{ID: "by-a-person", SessionID: st.in.SessionID, Content: "more"})
	require.NoError(t, err)
	require.Equal(t, session.PromptQueued, p.Status)
	require.NoError(t, st.db.PromptByAgent(t.Context(), session.Prompt{ID: "next", SessionID: st.in.SessionID, Content: "on", Author: list[1].Author}))
}
