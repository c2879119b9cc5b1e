package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/leaktest"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// key is an API key of the minimum length.
const key = "a key of twenty bytes"

func TestMain(m *testing.M) { leaktest.Main(m) }

type agents struct{}

func (agents) Names() []string               { return []string{"demo"} }
func (agents) Describe() []agent.Description { return []agent.Description{{Name: "demo"}} }

// Get finds no adapter, because the tests import no archive.
func (agents) Get(string) (agent.Adapter, error) { return nil, errors.ErrUnsupported }

type harness struct {
	store  *apitest.Store
	temp   *apitest.Signaler
	server *httptest.Server
	client *client.Client
}

// setup serves the real API over fakes, through the handler front if given.
func setup(t *testing.T, front ...func(http.Handler) http.Handler) *harness {
	t.Helper()
	b := &harness{store: apitest.NewStore(), temp: &apitest.Signaler{}}
	s, err := api.New(api.Config{Store: b.store, Signaler: b.temp, Events: b.store, Agents: agents{}, Key: secret.NewValue(key)})
	require.NoError(t, err)
	var handler http.Handler = s
	for _, f := range front {
		handler = f(handler)
	}
	b.server = httptest.NewServer(handler)
	b.client, err = client.New(b.server.URL+"/", key)
	require.NoError(t, err)
	t.Cleanup(func() {
		b.client.Close()
		b.server.CloseClientConnections()
		b.server.Close()
	})
	return b
}

func TestEveryCallAnswers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	s, err := b.client.SessionCreate(ctx, client.Create{
		Agent: "demo", Title: "t", IdleTimeout: "30s", Metadata: map[string]any{"a": "b"}, Sandbox: "eager",
		Prompt: &client.FirstPrompt{Content: "hi", ID: "first"}, Options: &client.Options{Model: "m"},
	}, "")
	require.NoError(t, err)
	require.Equal(t, "t", s.Title)
	got, err := b.client.SessionGet(ctx, s.ID)
	require.NoError(t, err)
	require.Equal(t, s, got)

	submitted, err := b.client.PromptSubmit(ctx, s.ID, client.Submit{Content: "more", OnUnknown: "fail"})
	require.NoError(t, err)
	require.EqualValues(t, 2, submitted.Position)
	require.True(t, submitted.Created)
	p := submitted.Prompt
	require.Equal(t, client.OnUnknownFail, p.OnUnknown)
	again, err := b.client.PromptSubmit(ctx, s.ID, client.Submit{Content: "more", OnUnknown: "fail", ID: p.ID})
	require.NoError(t, err)
	require.Equal(t, p, again.Prompt)
	require.False(t, again.Created)
	shown, err := b.client.PromptGet(ctx, s.ID, p.ID)
	require.NoError(t, err)
	require.Equal(t, p, shown)

	conv, err := b.client.Blocks(ctx, s.ID)
	require.NoError(t, err)
	require.Len(t, conv.Threads, 1)
	position, err := b.client.Position(ctx, s.ID)
	require.NoError(t, err)
	require.Equal(t, conv.Seq, position)
	require.Positive(t, position)

	b.store.Status(s.ID, session.Running)
	b.temp.TakeCalls()
	_, accepted, err := b.client.Command(ctx, s.ID, client.Hibernate, true)
	require.NoError(t, err)
	require.True(t, accepted)
	require.Equal(t, []string{"notify " + s.ID}, b.temp.TakeCalls())
	_, accepted, err = b.client.Command(ctx, s.ID, client.Wake, false)
	require.NoError(t, err)
	require.True(t, accepted, "it ends the hibernate")
	require.Equal(t, []string{"notify " + s.ID}, b.temp.TakeCalls())
	_, accepted, err = b.client.Command(ctx, s.ID, client.RestartEnvironment, true)
	require.NoError(t, err)
	require.True(t, accepted)
	require.Equal(t, []string{"notify " + s.ID}, b.temp.TakeCalls())
	_, err = b.client.Revert(ctx, s.ID, "unknown", false)
	problem, ok := errors.AsType[*client.Error](err)
	require.True(t, ok)
	require.Equal(t, client.CodePromptNotFound, problem.Code)
}

func TestListGoesOverAllPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 205 {
		b.store.Put(session.Running)
	}
	b.store.Put(session.Hibernated)
	all, err := b.client.SessionList(t.Context(), client.List{})
	require.NoError(t, err)
	require.Len(t, all.Items, 206)
	require.Nil(t, all.NextCursor)
	some, err := b.client.SessionList(t.Context(), client.List{Limit: 203, Status: "running"})
	require.NoError(t, err)
	require.Len(t, some.Items, 203)
	require.NotNil(t, some.NextCursor)
	rest, err := b.client.SessionList(t.Context(), client.List{Status: "running", Cursor: *some.NextCursor})
	require.NoError(t, err)
	require.NotEmpty(t, rest.Items)
	none, err := b.client.SessionList(t.Context(), client.List{Agent: "none"})
	require.NoError(t, err)
	require.NotNil(t, none.Items)
	require.Empty(t, none.Items)
}

func TestProblemResponsesBecomeErrors(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.client.SessionGet(t.Context(), session.NewID("ses_"))
	var problem *client.Error
	require.ErrorAs(t, err, &problem)
	require.Equal(t, client.CodeSessionNotFound, problem.Code)
	require.Equal(t, http.StatusNotFound, problem.Status)

	_, err = b.client.SessionCreate(t.Context(), client.Create{Agent: "unknown", IdleTimeout: "x"}, "")
	require.ErrorContains(t, err, "agent must be one of: demo")
	require.ErrorContains(t, err, "idleTimeout must be a duration")

	stranger, err := client.New(b.server.URL, "wrong")
	require.NoError(t, err)
	defer stranger.Close()
	_, err = stranger.SessionGet(t.Context(), session.NewID("ses_"))
	require.ErrorContains(t, err, "unauthorized")
}

func TestInvalidAddresses(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "localhost:8080", "ftp://x", "http://", "http://%zz"} {
		_, err := client.New(address, "")
		require.Error(t, err, address)
	}
}

func TestResponsesOfOtherServersAreRejected(t *testing.T) {
	t.Parallel()
	b := setup(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "events") {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			if r.Method == http.MethodPost {
				w.WriteHeader(http.StatusTeapot)
			}
			fmt.Fprint(w, "<html>hello</html>")
		})
	})
	_, err := b.client.SessionGet(t.Context(), "x")
	require.ErrorContains(t, err, "does not answer like overwinter")
	_, err = b.client.SessionCreate(t.Context(), client.Create{}, "")
	require.ErrorContains(t, err, "418")
	for _, err := range b.client.Follow(t.Context(), "x", 0) {
		require.ErrorContains(t, err, "204")
	}
}

func TestCallHonorsRetryAfter(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	b := setup(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if calls.Add(1) < 3 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	id := b.store.Put(session.Running)
	_, err := b.client.SessionGet(t.Context(), id)
	require.NoError(t, err)
	require.EqualValues(t, 3, calls.Load())
}

func TestCallEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	b := setup(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			calls.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
		})
	})
	_, err := b.client.SessionGet(t.Context(), "x")
	require.ErrorContains(t, err, "503")
	require.EqualValues(t, 4, calls.Load())
}

func TestRetryAfterLostResponseIsIdempotent(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	b := setup(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if calls.Add(1)%2 == 1 { // the request succeeded, but the response is lost
				next.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(w, r)
		})
	})
	s, err := b.client.SessionCreate(t.Context(), client.Create{Agent: "demo"}, "")
	require.NoError(t, err)
	require.Equal(t, 1, b.store.Count())
	_, err = b.client.PromptSubmit(t.Context(), s.ID, client.Submit{Content: "x"})
	require.NoError(t, err)
	require.Len(t, b.store.Row(s.ID).Prompts, 1)
	require.EqualValues(t, 4, calls.Load())
}

func TestUnreachableServer(t *testing.T) {
	t.Parallel()
	nowhere, err := client.New("http://127.0.0.1:1", key) // a port that is never assigned
	require.NoError(t, err)
	defer nowhere.Close()
	_, err = nowhere.SessionGet(t.Context(), "x")
	require.ErrorContains(t, err, "connection refused")
	events := 0
	for _, err := range nowhere.Follow(t.Context(), "x", 0) {
		require.ErrorContains(t, err, "connection refused")
		events++
	}
	require.Equal(t, 1, events)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = nowhere.SessionGet(ctx, "x")
	require.ErrorIs(t, err, context.Canceled)
}

func TestFollowResumesAfterDisconnect(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	const cuts = 5
	b.store.Text(id, "0")
	var seqs []int64
	var markers []string
	for e, err := range b.client.Follow(t.Context(), id, 0) {
		require.NoError(t, err)
		if e.Marker() {
			markers = append(markers, e.Type)
			continue
		}
		seqs = append(seqs, e.Seq)
		require.Equal(t, id, e.SessionID)
		require.Contains(t, string(e.Raw), `"seq":`)
		switch {
		case len(seqs) <= cuts:
			b.server.CloseClientConnections()
			b.store.Text(id, "written while no reader is connected")
			b.store.Text(id, "twice")
		case len(seqs) == 2*cuts+1:
			b.store.Status(id, session.Terminated)
		}
	}
	want := make([]int64, 2*cuts+2)
	for i := range want {
		want[i] = int64(i + 1)
	}
	require.Equal(t, want, seqs, "every event once, in order")
	require.Equal(t, []string{"caught_up", "end"}, markers)
}

func TestFollowStartsAfterPosition(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	for range 3 {
		b.store.Text(id, "x")
	}
	for e, err := range b.client.Follow(t.Context(), id, 2) {
		require.NoError(t, err)
		require.EqualValues(t, 3, e.Seq)
		break // the caller may stop at any time
	}
	require.Eventually(t, func() bool { return b.store.OpenReaders() == 0 }, 2*time.Minute, 5*time.Millisecond)
}

func TestFollowReportsGaps(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	b.store.Text(id, "x")
	var got []string
	for e, err := range b.client.Follow(t.Context(), id, 0) {
		require.NoError(t, err)
		got = append(got, fmt.Sprint(e.Type, " ", e.Seq))
		if e.Type == client.MarkerCaughtUp {
			b.store.With(id, func(r *apitest.Row) {
				r.First, r.Events = 9, nil
				b.store.Append(r, "title", map[string]string{"title": "t"})
			})
		}
		if e.Seq == 9 {
			break
		}
	}
	require.Equal(t, []string{"text_delta 1", "caught_up 0", "gap 0", "title 9"}, got)
}

func TestFollowEndsOnRefusal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	for after, code := range map[int64]client.Code{7: client.CodeInvalid} {
		for _, err := range b.client.Follow(t.Context(), id, after) {
			require.Equal(t, code, codeOf(err))
		}
	}
	for _, err := range b.client.Follow(t.Context(), session.NewID("ses_"), 0) {
		require.Equal(t, client.CodeSessionNotFound, codeOf(err))
	}
	b.store.Text(id, "x")
	b.store.Text(id, "x")
	last := error(nil)
	for e, err := range b.client.Follow(t.Context(), id, 0) { // refused only when it reconnects
		if last = err; e.Type == client.MarkerCaughtUp {
			b.store.Forget(id, 3)
			b.store.With(id, func(r *apitest.Row) {
				r.First = 9
				b.store.Append(r, "title", map[string]string{"title": "t"})
			})
			b.server.CloseClientConnections()
		}
		if e.Type == client.MarkerGap {
			last = &client.Error{Code: client.CodePositionGone} // the gap was reported before the connection broke
			break
		}
	}
	require.Equal(t, client.CodePositionGone, codeOf(last))
}

func codeOf(err error) client.Code {
	if e, ok := err.(*client.Error); ok { //nolint:errorlint // the very error
		return e.Code
	}
	return ""
}

func TestFollowEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for e, err := range b.client.Follow(ctx, id, 0) {
		if last = err; e.Type == client.MarkerCaughtUp {
			cancel()
		}
	}
	require.ErrorIs(t, last, context.Canceled)
}
