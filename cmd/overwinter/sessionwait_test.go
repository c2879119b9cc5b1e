package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// TestCommandsWaitForOutcome uses a workflow that executes each command in the steps of a real
// workflow.
func TestCommandsWaitForOutcome(t *testing.T) {
	t.Parallel()
	const applied = session.CommandApplied
	for name, c := range map[string]struct {
		from session.State
		args string
		does func(store *apitest.Store, id string)
		code int
		says string
	}{
		"hibernate": {session.Running, "hibernate", func(s *apitest.Store, id string) {
			s.End(id, session.CommandHibernate, applied, "", session.Hibernating)
			s.Status(id, session.Hibernated)
		}, exitDone, "hibernated: hibernate applied"},
		"hibernate while it hibernates": {session.Hibernating, "hibernate", nil, exitTimeout, "hibernate of session"},
		"hibernate when hibernated":     {session.Hibernated, "hibernate", nil, exitDone, "hibernated: nothing to do"},
		"wake": {session.Hibernated, "wake", func(s *apitest.Store, id string) {
			s.End(id, session.CommandWake, applied, "", session.Restoring)
			s.Status(id, session.Running)
		}, exitDone, "running: wake applied"},
		"wake that fails": {session.Hibernated, "wake", func(s *apitest.Store, id string) {
			s.End(id, session.CommandWake, applied, "", session.Restoring)
			s.Status(id, session.Error)
		}, exitFailed, "; retry with overwinter session recover ses_"},
		"restart": {session.Running, "restart --force", func(s *apitest.Store, id string) {
			s.End(id, session.CommandRestart, applied, "", session.Hibernating)
			s.Status(id, session.Hibernated)
			s.Status(id, session.Restoring)
			s.Status(id, session.Running)
		}, exitDone, "running: environment/restart applied"},
		"restart that takes long": {session.Running, "restart", func(s *apitest.Store, id string) {
			s.End(id, session.CommandRestart, applied, "", session.Hibernating)
			s.Status(id, session.Hibernated)
		}, exitTimeout, "environment/restart of session"},
		"drop": {session.Running, "drop", func(s *apitest.Store, id string) {
			s.End(id, session.CommandDrop, applied, "", session.Hibernating)
			s.Status(id, session.Hibernated)
		}, exitDone, "hibernated: environment/terminate applied"},
		"recover": {session.Error, "recover", func(s *apitest.Store, id string) {
			s.End(id, session.CommandRecover, applied, "", session.Restoring)
			s.Status(id, session.Running)
		}, exitDone, "running: recover applied"},
		"recover in vain": {session.Error, "recover", func(s *apitest.Store, id string) {
			s.End(id, session.CommandRecover, applied, "", session.Restoring)
			s.Status(id, session.Error)
		}, exitFailed, "is in error"},
		"sync": {session.Running, "sync", func(s *apitest.Store, id string) {
			s.End(id, session.CommandSync, applied, "", "")
		}, exitDone, "running: sync applied"},
		"sync that is refused": {session.Running, "sync", func(s *apitest.Store, id string) {
			s.End(id, session.CommandSync, session.CommandRefused, "session_in_error", session.Error)
		}, exitFailed, "was refused (session_in_error)"},
		"superseded": {session.Running, "hibernate", func(s *apitest.Store, id string) {
			s.End(id, session.CommandHibernate, session.CommandSuperseded, "", "")
		}, exitFailed, "was superseded"},
		"stop": {session.Running, "stop", func(s *apitest.Store, id string) {
			s.End(id, session.CommandStop, applied, "", session.Terminated)
		}, exitDone, "terminated: stop applied"},
		"wake of one that is stopped": {session.Hibernated, "wake", func(s *apitest.Store, id string) {
			s.End(id, session.CommandWake, applied, "", session.Restoring)
			s.Status(id, session.Terminated)
		}, exitFailed, "wake had no effect: session ses_"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, temporal, url := sessionServer(t, "")
			id := store.Put(c.from)
			temporal.Set(func(o *apitest.Signaler) {
				o.OnCommands = func(id string) {
					if c.does != nil {
						c.does(store, id)
					}
				}
			})
			flags := []string{"--wait", "--timeout=1m", "--api-url", url}
			if c.code == exitTimeout {
				flags[1] = "--timeout=200ms"
			}
			verb, force, _ := strings.Cut(c.args, " ")
			args := []string{"session", verb, id}
			if force != "" {
				args = append(args, force)
			}
			r := run(t.Context(), append(args, flags...)...)
			require.Equal(t, c.code, r.code, "%s%s", r.stdout, r.stderr)
			require.Contains(t, r.stdout+r.stderr, c.says)
		})
	}
}

func TestWaitingCommandReportsOpenQuestion(t *testing.T) {
	t.Parallel()
	store, temporal, url := sessionServer(t, "")
	id := store.Put(session.Running)
	asked := store.Ask(id, question.Asked{Kind: question.Permission, Title: "Bash: ls\x1b", ToolName: "Bash"}, time.Hour)
	r := run(t.Context(), "session", "hibernate", id, "--wait", "--timeout=10s", "--api-url", url)
	require.Equal(t, exitTimeout, r.code)
	require.Contains(t, r.stderr, "hibernate waits for the turn, in which the agent asks: Bash: ls\nanswer with overwinter session answer "+id+" "+asked+", or use --force; the question expires at 2")

	// With --force, the command does not wait for an answer.
	temporal.Set(func(o *apitest.Signaler) {
		o.OnCommands = func(id string) {
			store.End(id, session.CommandHibernate, session.CommandApplied, "", session.Hibernated)
		}
	})
	r = run(t.Context(), "session", "hibernate", id, "--wait", "--force", "-o", "json", "--timeout=1m", "--api-url", url)
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Empty(t, r.stderr)
	require.Contains(t, r.stdout, `"status": "hibernated"`)
}

func TestCreateWaitsForEagerSandbox(t *testing.T) {
	t.Parallel()
	store, temporal, url := sessionServer(t, "")
	temporal.Set(func(o *apitest.Signaler) { o.OnPrompt = func(id, _ string) { store.Status(id, session.Running) } })
	r := run(t.Context(), "session", "create", "--agent=demo", "--eager", "--wait", "--timeout=1m", "--api-url", url)
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Regexp(t, `status +running`, r.stdout)
	temporal.Set(func(o *apitest.Signaler) { o.OnPrompt = func(id, _ string) { store.Status(id, session.Error) } })
	r = run(t.Context(), "session", "create", "--agent=demo", "--eager", "--wait", "--timeout=1m", "--api-url", url)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "is in error (test)")
}

func TestWaitingPromptReportsHeldQueue(t *testing.T) {
	t.Parallel()
	store, _, url := sessionServer(t, "")
	id := store.Put(session.Running)
	// prompt sends a prompt whose turn starts after it is stored, so the events about the queue
	// precede it.
	prompt := func(promptID string) result {
		ended := make(chan result, 1)
		go func() {
			ended <- run(t.Context(), "session", "prompt", id, "hello", "--id", promptID, "--wait", "--timeout=1m", "--api-url", url)
		}()
		require.Eventually(t, func() bool {
			return slices.ContainsFunc(store.Row(id).Prompts, func(p session.Prompt) bool { return p.ID == promptID })
		}, time.Minute, 5*time.Millisecond)
		store.Turn(id, promptID, session.PromptCompleted, "", "done")
		r := <-ended
		require.Equal(t, exitDone, r.code, r.stderr)
		return r
	}
	require.NotContains(t, prompt("p1").stderr, "is held")
	_, err := store.SessionHold(t.Context(), id, "looking\x1b into it")
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(prompt("p2").stderr,
		"the queue is held (looking into it): the prompt waits for its release\nto release it: overwinter session release "+id+"\n"))
}
