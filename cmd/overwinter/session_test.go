package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/agent/catalog"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// sessionServer serves the real API over an in-memory store whose agent answers every prompt at
// once: "fail …" fails, "lose …" is lost, "wait" stays in the queue, "silent" writes no text, and
// any other prompt is echoed.
func sessionServer(t *testing.T, key string) (*apitest.Store, *apitest.Signaler, string) {
	t.Helper()
	store := apitest.NewStore()
	temporal := &apitest.Signaler{}
	temporal.Set(func(o *apitest.Signaler) {
		o.OnPrompt = func(id, promptID string) {
			for _, p := range store.Row(id).Prompts {
				if p.ID != promptID {
					continue
				}
				switch word, _, _ := strings.Cut(p.Content, " "); word {
				case "wait":
				case "silent":
					store.Turn(id, promptID, session.PromptCompleted, "")
				case "fail":
					store.Turn(id, promptID, session.PromptFailed, "agent_crashed", "I will")
				case "lose":
					store.Turn(id, promptID, session.PromptUnknown, "sandbox_lost")
				default:
					store.Turn(id, promptID, session.PromptCompleted, "", p.Content, "second\x1b[31m block")
				}
			}
		}
	})
	server, err := api.New(api.Config{
		Store: store, Signaler: temporal, Events: store, Agents: catalog.Agents(), Key: secret.NewValue(key), WithoutKey: key == "",
		Secrets: keyringOf(t, keyText(1)),
	})
	require.NoError(t, err)
	listener := httptest.NewServer(server)
	t.Cleanup(func() {
		listener.CloseClientConnections()
		listener.Close()
	})
	return store, temporal, listener.URL
}

// TestSessionScripts runs testdata/session: "overwinter ARGS" must exit with 0, "fails ARGS" with
// 1, "misuse ARGS" with 2 and "late ARGS" with 3. {ID} is a running session, {SLEEPER} a hibernated
// session and {GONE} a terminated session.
func TestSessionScripts(t *testing.T) {
	t.Parallel()
	ends := func(want int) func(*testscript.TestScript, bool, []string) {
		return func(ts *testscript.TestScript, neg bool, args []string) {
			if neg {
				ts.Fatalf("say fails or misuse")
			}
			var all []string
			if !slices.Contains([]string{"secret", "profile", "agent", "completion"}, args[0]) {
				all = append(all, "session")
			}
			for _, arg := range args {
				for _, name := range []string{"ID", "SLEEPER", "GONE", "KEPT"} {
					arg = strings.ReplaceAll(arg, "{"+name+"}", ts.Getenv(name))
				}
				all = append(all, arg)
			}
			if args[0] != "completion" {
				all = append(all, "--api-url="+ts.Getenv("URL"), "--api-key=key-of-the-session-tests")
			}
			ctx, cancel := context.WithCancel(context.Background())
			ts.Defer(cancel)
			var stdout, stderr bytes.Buffer
			code := program{args: all, stdin: strings.NewReader("from stdin\n"), stdout: &stdout, stderr: &stderr}.Run(ctx)
			fmt.Fprint(ts.Stdout(), stdout.String())
			fmt.Fprint(ts.Stderr(), stderr.String())
			if code != want {
				ts.Fatalf("exit code %d, want %d\n%s%s", code, want, &stdout, &stderr)
			}
		}
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/session",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			store, _, url := sessionServer(t, "key-of-the-session-tests")
			env.Setenv("URL", url)
			env.Setenv("ID", store.Put(session.Running))
			env.Setenv("SLEEPER", store.Put(session.Hibernated, func(s *session.Session) { s.Title = "Dormouse\x1b[2J" }))
			env.Setenv("GONE", store.Put(session.Terminated))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"overwinter": ends(exitDone), "fails": ends(exitFailed), "misuse": ends(exitUsage), "late": ends(exitTimeout),
			// keep sets {KEPT} to the value of the first "id" in the last output.
			"keep": func(ts *testscript.TestScript, _ bool, _ []string) {
				_, rest, _ := strings.Cut(ts.ReadFile("stdout"), `"id": "`)
				id, _, _ := strings.Cut(rest, `"`)
				ts.Setenv("KEPT", id)
			},
		},
	})
}

func TestPromptAnswersAreStreamed(t *testing.T) {
	t.Parallel()
	store, temporal, url := sessionServer(t, "")
	temporal.Set(func(o *apitest.Signaler) { o.OnPrompt = nil })
	id := store.Put(session.Running)
	out, in := io.Pipe()
	defer out.Close()
	done := make(chan int, 1)
	go func() {
		done <- program{
			args: []string{"session", "prompt", id, "hello", "--wait", "--id=p", "--api-url", url}, stdin: strings.NewReader(""), stdout: in, stderr: io.Discard,
		}.Run(t.Context())
	}()
	require.Eventually(t, func() bool { return len(store.Row(id).Prompts) == 1 }, eventuallyTimeout, eventuallyTick)
	go store.Turn(id, "p", session.PromptCompleted, "", "hello")
	piece := make([]byte, 64)
	n, err := out.Read(piece)
	require.NoError(t, err)
	require.Equal(t, "he", string(piece[:n]), "the first piece comes before the rest")
	rest := make(chan []byte, 1)
	go func() {
		data, err := io.ReadAll(out)
		if err != nil {
			data = []byte(err.Error())
		}
		rest <- data
	}()
	require.Equal(t, exitDone, <-done)
	require.NoError(t, in.Close())
	require.Equal(t, "llo\n", string(<-rest))
}

func TestPromptWaitsThroughRetry(t *testing.T) {
	t.Parallel()
	store, temporal, url := sessionServer(t, "")
	temporal.Set(func(o *apitest.Signaler) {
		o.OnPrompt = func(id, promptID string) {
			store.Turn(id, promptID, session.PromptUnknown, "sandbox_lost", "lost words")
			store.With(id, func(r *apitest.Row) { r.Prompts[0].Status = session.PromptQueued })
			store.Turn(id, promptID, session.PromptCompleted, "", "at last")
		}
	})
	id := store.Put(session.Running)
	r := run(t.Context(), "session", "prompt", id, "x", "--wait", "--on-unknown=retry", "--api-url", url)
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Equal(t, "lost words\nat last\n", r.stdout)
}

func TestPromptOfEndingSession(t *testing.T) {
	t.Parallel()
	store, temporal, url := sessionServer(t, "")
	temporal.Set(func(o *apitest.Signaler) {
		o.OnPrompt = func(id, promptID string) {
			store.Status(id, session.Terminated)
			store.With(id, func(r *apitest.Row) { r.Prompts[0].Status = session.PromptCancelled }) // without an event
		}
	})
	id := store.Put(session.Running)
	r := run(t.Context(), "session", "prompt", id, "x", "--wait", "--id=p", "--api-url", url)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "prompt p ended cancelled")
}

func TestWaitingEndsWhenSessionIsInError(t *testing.T) {
	t.Parallel()
	store, temporal, url := sessionServer(t, "")
	temporal.Set(func(o *apitest.Signaler) { o.OnPrompt = func(id, _ string) { store.Status(id, session.Error) } })
	id := store.Put(session.Running)
	r := run(t.Context(), "session", "prompt", id, "x", "--wait", "--id=p", "--api-url", url)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "prompt p waits: session "+id+" is in error (test); retry with overwinter session recover "+id)

	for _, flags := range [][]string{{"--until=idle"}, {}, {"-o", "json"}} {
		r = run(t.Context(), append([]string{"session", "follow", id, "--api-url", url}, flags...)...)
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.stderr, "session "+id+" is in error (test)")
	}
	r = run(t.Context(), "session", "prompt", id, "y", "--api-url", url)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "session is in error: test; POST recover to try again")

	// Past errors do not count.
	store.Status(id, session.Running)
	store.Turn(id, "p", session.PromptCompleted, "", "after all")
	r = run(t.Context(), "session", "prompt", id, "x", "--wait", "--id=p", "--api-url", url)
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Equal(t, "after all\n", r.stdout)
	require.Equal(t, exitDone, run(t.Context(), "session", "follow", id, "--until=idle", "--api-url", url).code)

	store.Status(id, session.Terminated)
	r = run(t.Context(), "session", "follow", id, "--until=idle", "--api-url", url)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "session "+id+" is terminated")
	require.Equal(t, exitDone, run(t.Context(), "session", "follow", id, "--api-url", url).code, "this is what it waits for")
}

func TestBlockedPromptIsShown(t *testing.T) {
	t.Parallel()
	store, temporal, url := sessionServer(t, "")
	temporal.Set(func(o *apitest.Signaler) { o.OnPrompt = nil })
	id := store.Put(session.Running)
	require.Equal(t, exitDone, run(t.Context(), "session", "prompt", id, "x", "--id=p", "--api-url", url).code)
	store.With(id, func(r *apitest.Row) { r.Prompts[0].BlockedReason = "the disk is gone" })
	store.Prompt(id, "p", session.PromptQueued)
	store.Turn(id, "p", session.PromptCompleted, "", "after all")
	r := run(t.Context(), "session", "follow", id, "--until=idle", "--api-url", url)
	require.Contains(t, r.stdout, "blocked (the disk is gone)")
}

func TestFollowUntilIdleWaitsForQueue(t *testing.T) {
	t.Parallel()
	store, temporal, url := sessionServer(t, "")
	temporal.Set(func(o *apitest.Signaler) { o.OnPrompt = nil })
	id := store.Put(session.Running)
	require.Equal(t, exitDone, run(t.Context(), "session", "prompt", id, "x", "--id=p", "--api-url", url).code)
	done := make(chan result, 1)
	go func() { done <- run(t.Context(), "session", "follow", id, "--until=idle", "--api-url", url) }()
	require.Eventually(t, func() bool { return store.OpenReaders() == 1 }, eventuallyTimeout, eventuallyTick)
	store.Turn(id, "p", session.PromptCompleted, "", "done so")
	r := <-done
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "agent: done so")
}

func TestSessionErrorsNameServerURL(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"list"}, {"follow", "ses_1"}, {"prompt", "ses_1", "x", "--wait"}} {
		r := run(t.Context(), append([]string{"session", "--api-url=http://127.0.0.1:1"}, args...)...)
		require.Equal(t, exitFailed, r.code)
		require.Equal(t, "overwinter: no server listens at http://127.0.0.1:1: start overwinter, or pass its address with --api-url\n", r.stderr)
	}
}

func TestInterruptEndsFollowing(t *testing.T) {
	t.Parallel()
	store, _, url := sessionServer(t, "")
	id := store.Put(session.Running)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan result, 1)
	go func() { done <- run(ctx, "session", "follow", id, "--api-url", url) }()
	require.Eventually(t, func() bool { return store.OpenReaders() == 1 }, eventuallyTimeout, eventuallyTick)
	cancel()
	require.Equal(t, exitFailed, (<-done).code)
}

func TestSessionWarnsOfKeyInClearText(t *testing.T) {
	t.Parallel()
	const warning = "the API key is sent in clear text"
	for url, warned := range map[string]bool{
		"http://192.0.2.1:1": true, "http://api.invalid": true, "https://api.invalid": false,
		"http://127.0.0.1:1": false, "http://localhost:1": false, "http://[::1]:1": false,
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // the server must not be reachable
		r := run(ctx, "session", "list", "--api-url="+url, "--api-key=let-me-in-please-or-not")
		require.Equal(t, warned, strings.Contains(r.stderr, warning), "%s: %s", url, r.stderr)
		require.NotContains(t, r.stderr, "let-me-in-please-or-not")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NotContains(t, run(ctx, "session", "list", "--api-url=http://192.0.2.1:1").stderr, warning, "without a key")
}
