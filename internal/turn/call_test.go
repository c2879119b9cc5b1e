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

	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/agentmessage"
	"github.com/overwinter-dev/overwinter/internal/agenttool"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/turn"
)

// calls returns a frame with a call of a tool.
func calls(tool, input string) string { return fmt.Sprintf(`CALL{"tool":%q,"input":%s}`, tool, input) }

// answers records the answers that the runner received, by frame.
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

// TestCallIsExecutedWithItsFrame checks that the events of a call are in the log before the agent
// gets its answer.
func TestCallIsExecutedWithItsFrame(t *testing.T) {
	t.Parallel()
	st := setup(t, script{
		frames: []string{
			says("one"), calls("set_title", `{"title":" Tests \n of Xylophone7Quartz "}`), calls("set_title", `{"title":""}`),
			calls("set_title", `{"title":"`+strings.Repeat("x", 201)+`"}`), calls("no_tool", `{}`), "CALL7", endsTurn,
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
	for frame, want := range map[int64]string{1: titled, 2: "must not be empty", 3: "at most 200", 4: "There is no tool", 5: "is not valid"} {
		require.Len(t, st.answers.of(frame), 1, frame)
		require.Contains(t, st.answers.of(frame)[0], want)
		require.Equal(t, frame != 1, strings.Contains(st.answers.of(frame)[0], `"failed":true`))
	}
}

// losing is a log whose worker is lost when it commits a certain frame.
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

// TestCallHappensOnceAcrossLostWorkers loses a worker before the frame of a call is committed, or
// between the commit and the answer. The next worker answers, and the title is set once.
func TestCallHappensOnceAcrossLostWorkers(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"before the commit": true, "before the answer": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := setup(t, script{frames: []string{says("one"), calls("set_title", `{"title":"Once"}`), says("two"), endsTurn}, waiting: []int64{1}})
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

// TestCallsOfTurnAreBounded checks that calls beyond the limit are answered and have no effect.
func TestCallsOfTurnAreBounded(t *testing.T) {
	t.Parallel()
	var frames []string
	for i := range agenttool.MaxPerTurn + 1 {
		frames = append(frames, calls("set_title", fmt.Sprintf(`{"title":"Title %d"}`, i)))
	}
	st := setup(t, script{frames: append(frames, endsTurn)})
	_, err := st.executor.Run(t.Context(), st.take(t), &progress{})
	require.NoError(t, err)
	require.Len(t, st.events(t, "title"), agenttool.MaxPerTurn)
	require.Contains(t, st.answers.of(agenttool.MaxPerTurn)[0], "which is the limit")
}

// TestScreenshotIsStoredBeforeItsEvent checks that a screenshot is stored like an image in the
// result of a tool.
func TestScreenshotIsStoredBeforeItsEvent(t *testing.T) {
	t.Parallel()
	image, secretImage := []byte("\x89PNG\r\n\x1a\nof the page"), []byte("\x89PNG\r\n\x1a\nwith Xylophone7Quartz")
	shot := func(image []byte) string {
		return fmt.Sprintf(`CALL{"tool":"save_screenshot","input":{"path":"a.png","description":"the page"},"image":%q}`, base64.StdEncoding.EncodeToString(image))
	}
	st := setup(t, script{
		frames: []string{shot(image), shot(secretImage), endsTurn},
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

// TestMessageCreatesOnePrompt checks that a message creates one prompt even if its worker is lost
// before the frame is committed. Agents may send a few messages between two prompts from people.
func TestMessageCreatesOnePrompt(t *testing.T) {
	t.Parallel()
	frames := []string{calls("session_message", `{"message":"one"}`)}
	for i := range session.MaxAgentPrompts {
		frames = append(frames, calls("session_message", fmt.Sprintf(`{"message":"message %d"}`, i)))
	}
	st := setup(t, script{frames: append(frames, endsTurn)})
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
}

// TestDisabledToolsAreNotOffered disables the tools in the installation, in a profile, or by a
// server of a profile that replaces them. The agent must be started without any trace of them.
func TestDisabledToolsAreNotOffered(t *testing.T) {
	t.Parallel()
	off := false
	for name, c := range map[string]struct {
		noTools bool
		profile *profile.Spec
		offered bool
	}{
		"by default":                     {offered: true},
		"with a profile":                 {profile: &profile.Spec{Instructions: "be brief"}, offered: true},
		"with another server":            {profile: &profile.Spec{MCPServers: []profile.MCPServer{{Name: "another", Command: "serve"}}}, offered: true},
		"by the installation":            {noTools: true},
		"by the installation, profiled":  {noTools: true, profile: &profile.Spec{Instructions: "be brief"}},
		"by the profile":                 {profile: &profile.Spec{OverwinterTools: &off}},
		"by a server in the place of it": {profile: &profile.Spec{MCPServers: []profile.MCPServer{{Name: "overwinter", Command: "serve"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := setup(t, script{frames: []string{says("one"), endsTurn}})
			config := st.executor.Config
			config.NoTools = c.noTools
			in := st.take(t)
			if in.Start.Profile = c.profile; c.profile != nil {
				in.Start.ProfileRef = "prf_1@1"
			}
			_, err := turn.New(config).Run(t.Context(), in, &progress{})
			require.NoError(t, err)
			found, ok := st.launches.Load(st.in.RunID)
			require.True(t, ok)
			launch, err := json.Marshal(found)
			require.NoError(t, err)
			require.Equal(t, c.offered, strings.Contains(string(launch), stdio.EnvTools), string(launch))
		})
	}
}

// mailbox receives the messages of agents instead of the store that it wraps.
type mailbox struct {
	turn.Store
	take func(agentmessage.Message) (session.Prompt, error)
}

func (m mailbox) PromptByAgent(_ context.Context, message agentmessage.Message) (session.Prompt, error) {
	return m.take(message)
}

// TestMessageToAnotherSession checks that a message has the depth of its prompt, and that the
// workflow of the other session is signalled if necessary.
func TestMessageToAnotherSession(t *testing.T) {
	t.Parallel()
	st := setup(t, script{frames: []string{
		calls("session_message", `{"message":"one","to":"parent"}`), calls("session_message", `{"message":"two","to":"parent"}`), endsTurn,
	}})
	c := st.executor.Config
	var sent []agentmessage.Message
	var prompted []string
	c.Store = mailbox{c.Store, func(m agentmessage.Message) (session.Prompt, error) {
		sent = append(sent, m)
		return session.Prompt{ID: m.ID, SessionID: "the parent", Notify: m.Content == "one"}, nil
	}}
	c.Prompted = func(_ context.Context, p session.Prompt) { prompted = append(prompted, p.SessionID+" "+p.ID) }
	in := st.take(t)
	in.Start.Prompt.Depth, in.Start.Prompt.RequestID = 3, "r1"
	_, err := turn.New(c).Run(t.Context(), in, &progress{})
	require.NoError(t, err)
	require.Len(t, sent, 2)
	require.NotEqual(t, sent[0].ID, sent[1].ID)
	require.Equal(t, agentmessage.Message{ID: sent[0].ID, From: st.in.SessionID, To: "parent", Content: "one", Depth: 3, RequestID: "r1"}, sent[0])
	require.Equal(t, []string{"the parent " + sent[0].ID}, prompted)
	require.Contains(t, st.answers.of(0)[0], "queue of the other session")
}

// TestUntakenMessage checks that the agent gets the reason why its message was refused. If the
// store is unavailable, the attempt fails instead, and the next one sends the message.
func TestUntakenMessage(t *testing.T) {
	t.Parallel()
	codes := []failure.Code{failure.Forbidden, failure.NoSession, failure.Terminated, failure.InError, failure.QueueFull, failure.LimitReached}
	var frames []string
	for _, code := range codes {
		frames = append(frames, calls("session_message", fmt.Sprintf(`{"message":%q,"to":"parent"}`, code)))
	}
	st := setup(t, script{frames: append(frames, calls("session_message", `{"message":"unavailable","to":"parent"}`), endsTurn)})
	c := st.executor.Config
	away := true
	c.Store = mailbox{c.Store, func(m agentmessage.Message) (session.Prompt, error) {
		if m.Content == "unavailable" && !away {
			return session.Prompt{}, nil
		}
		return session.Prompt{}, failure.Errorf(failure.Code(m.Content), "the reason is %s", m.Content)
	}}
	_, err := turn.New(c).Run(t.Context(), st.take(t), &progress{})
	require.Equal(t, failure.Unavailable, failure.CodeOf(err))
	away = false
	result, err := turn.New(c).Run(t.Context(), st.take(t), &progress{})
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, result.End.Outcome)
	for i, code := range codes {
		require.Contains(t, st.answers.of(int64(i))[0], "The message was not sent: the reason is "+string(code))
		require.Contains(t, st.answers.of(int64(i))[0], `"failed":true`)
	}
	require.NotContains(t, st.answers.of(int64(len(codes)))[0], `"failed":true`)
}
