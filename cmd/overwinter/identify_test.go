package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestIDsAreShortened(t *testing.T) {
	t.Parallel()
	store, temporal, url := sessionServer(t, "")
	temporal.Set(func(o *apitest.Signaler) { o.OnPrompt = nil })
	do := func(args ...string) result {
		return run(t.Context(), append(append([]string{"session"}, args...), "--api-url", url)...)
	}
	require.Contains(t, do("show", "@last").stderr, "@last: no session exists yet")
	const first, second = "ses_01a20000000070008000000000000001", "ses_01a20000000170008000000000000002"
	for _, id := range []string{first, second} {
		store.Put(session.Running, func(s *session.Session) { s.ID, s.Title = id, "Title of "+id[len(id)-1:] })
	}
	shows := func(id, text string) {
		t.Helper()
		r := do("show", text)
		require.Equal(t, exitDone, r.code, r.stderr)
		require.Regexp(t, `(?m)^id +`+id+`$`, r.stdout)
	}
	shows(second, "@last")
	shows(first, "01a200000000")
	shows(first, "ses_01a200000000")
	shows(second, second)
	r := do("show", "01a2")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "01a2 is the beginning of 2 session IDs: "+second+" (running Title of 2), "+first+" (running Title of 1)")
	require.Contains(t, do("show", "01b2").stderr, "there is no session whose ID begins with 01b2")
	require.Contains(t, do("show", "nonsense").stderr, "invalid_request", "this is left to the API")

	// The IDs of a list are accepted as arguments.
	for line := range strings.Lines(do("list").stdout) {
		if short := strings.Fields(line)[0]; short != "ID" {
			require.Len(t, short, 12)
			require.Equal(t, exitDone, do("show", short).code)
		}
	}

	// IDs of prompts may be any text.
	require.Contains(t, do("withdraw", first, "@last").stderr, "session "+first+" has no prompt")
	const mine, other = "prm_01a20000000070008000000000000003", "prm_01a20000000170008000000000000004"
	for _, id := range []string{mine, other, "cafe"} {
		require.Equal(t, exitDone, do("prompt", "01a200000000", "wait", "--id", id).code)
	}
	require.Contains(t, do("withdraw", first, "01a2").stderr, "01a2 is the beginning of 2 prompt IDs: "+mine+" (queued wait), "+other)
	require.Contains(t, do("withdraw", first, "01a200000000").stdout, mine+"  cancelled")
	require.Contains(t, do("withdraw", first, "cafe").stdout, "cafe  cancelled")
	require.Equal(t, exitDone, do("prompt", first, "wait", "--id", "latest").code)
	require.Contains(t, do("withdraw", first, "@last").stdout, "latest  cancelled")
	require.Contains(t, do("withdraw", first, "dead").stderr, "there is no prompt whose ID begins with dead")
	require.Contains(t, do("withdraw", first, "none").stderr, "prompt_not_found")
}

func TestOnlyOpenQuestionNeedsNoID(t *testing.T) {
	t.Parallel()
	store, _, url := sessionServer(t, "")
	id := store.Put(session.Running)
	do := func(args ...string) result {
		return run(t.Context(), append(append([]string{"session"}, args...), "--api-url", url)...)
	}
	permission := question.Asked{Kind: question.Permission, Title: "Bash: ls", ToolName: "Bash"}
	require.Contains(t, do("answer", id, "once").stderr, "no question of session "+id+" is open")
	first := store.Ask(id, permission, time.Hour)
	require.Contains(t, do("show", id).stdout, "Bash: ls", "the question is shown with the session")
	require.Equal(t, first+"  answered: once\n", do("answer", id, "once").stdout)
	second, third := store.Ask(id, permission, time.Hour), store.Ask(id, permission, time.Hour)
	r := do("answer", id, "reject", "--message=no")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "2 questions are open, name one: ")
	require.Contains(t, r.stderr, third+" (open Bash: ls)")
	require.Equal(t, third+"  answered: reject\n", do("answer", id, strings.TrimPrefix(third, "que_")[:31], "reject").stdout)
	require.Equal(t, second+"  answered: always\n", do("answer", id, "always").stdout)
	require.Equal(t, exitUsage, do("answer", id).code)
	require.Equal(t, exitUsage, do("answer", id, second).code, "an ID is no answer")

	// A single item is answered with text or the number of an option.
	colour := question.Asked{Kind: question.Inquiry, Title: "Which colour?", Inquiries: []question.Item{
		{Question: "Which colour?", Options: []question.Option{{Label: "Red"}, {Label: "Blue"}}},
	}}
	fourth := store.Ask(id, colour, time.Hour)
	require.Contains(t, do("answer", id, "3").stderr, `invalid answer "3": there is no option 3`)
	require.Equal(t, fourth+"  answered: once; Which colour?: Blue\n", do("answer", id, "2").stdout)
	fifth := store.Ask(id, colour, time.Hour)
	require.Equal(t, fifth+"  answered: once; Which colour?: light green\n", do("answer", id, fifth, "light green").stdout)
	store.Ask(id, permission, time.Hour)
	require.Contains(t, do("answer", id, "perhaps").stderr, `invalid answer "perhaps": answer once, session, always, or reject with a reason`)
	require.Equal(t, exitUsage, do("answer", id, "que_1", "perhaps", "--answer", "a=b").code)
}

func TestShowPrintsSettingsOfSession(t *testing.T) {
	t.Parallel()
	store, temporal, url := sessionServer(t, "")
	temporal.Set(func(o *apitest.Signaler) { o.OnPrompt = nil })
	id := store.Put(session.Running, func(s *session.Session) {
		s.Profile, s.Workspace = "prf_1@2", &session.Workspace{RepoURL: "https://example.com/a.git", Ref: "main", Setup: "make\ninstall"}
		s.Options = session.Options{Permissions: "ask", QuestionTimeout: session.Duration(time.Hour)}
	})
	require.Equal(t, exitDone, run(t.Context(), "session", "prompt", id, "wait a bit", "--api-url", url).code)
	store.With(id, func(r *apitest.Row) {
		r.Prompts = append(r.Prompts, session.Prompt{ID: "lost", Status: session.PromptUnknown, Reason: "sandbox_lost"}, session.Prompt{ID: "over", Status: session.PromptCompleted})
	})
	r := run(t.Context(), "session", "show", id, "--api-url", url)
	require.Equal(t, exitDone, r.code, r.stderr)
	for _, line := range []string{
		`profile +prf_1@2`, `repository +https://example.com/a.git \(main\)`, `setup +make install`, `permissions +ask`, `question timeout +1h0m0s`,
		`[0-9a-f]{11} +1 +queued +(now|\d+s ago) +wait a bit`, `lost +0 +unknown \(sandbox_lost\) .*`,
	} {
		require.Regexp(t, `(?m)^`+line+`$`, r.stdout)
	}
	require.NotContains(t, r.stdout, "over ")
	require.NotContains(t, run(t.Context(), "session", "show", id, "-o", "json", "--api-url", url).stdout, "wait a bit", "JSON is what the API sends")
}

func TestTimesAreRelative(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "now", 900 * time.Millisecond: "now", 59 * time.Second: "59s ago", 61 * time.Second: "1m ago", 3 * time.Hour: "3h ago",
		47 * time.Hour: "47h ago", 48 * time.Hour: "2d ago", -90 * time.Second: "in 1m", -20 * time.Minute: "in 20m",
	} {
		require.Equal(t, want, ago(d), d)
	}
}
