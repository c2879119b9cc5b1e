package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/cli"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/problem"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// typing runs the program with the given standard input.
func typing(ctx context.Context, stdin string, args ...string) result {
	var stdout, stderr bytes.Buffer
	code := program{args: args, stdin: strings.NewReader(stdin), stdout: &stdout, stderr: &stderr}.Run(ctx)
	return result{code: code, stdout: stdout.String(), stderr: stderr.String()}
}

func TestAttachAnswersLinesOfScript(t *testing.T) {
	t.Parallel()
	store, _, url := sessionServer(t, "")
	id := store.Put(session.Running)
	require.Equal(t, exitDone, run(t.Context(), "session", "prompt", id, "of before", "--wait", "--api-url", url).code)
	r := typing(t.Context(), "hello there\n\n\"\"\"\nfrom\nfour\n\n\"\"\"\n/quit is\\\nsent", "session", "attach", id, "--api-url", url)
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Equal(t, "hello there\nsecond[31m block\nfrom\nfour\nsecond[31m block\n/quit is\nsent\nsecond[31m block\n", r.stdout)
	require.Empty(t, r.stderr)

	r = typing(t.Context(), "fail here\nwell\nlose it\n", "session", "attach", id, "--api-url", url, "-o", "json")
	require.Equal(t, exitFailed, r.code)
	require.Regexp(t, `^overwinter: prompt prm_\w+ ended failed \(agent_crashed\); prompt prm_\w+ ended unknown \(sandbox_lost\)\n$`, r.stderr)
	var answers []string
	for line := range strings.Lines(r.stdout) {
		var a cli.PromptAnswer
		require.NoError(t, json.Unmarshal([]byte(line), &a))
		answers = append(answers, string(a.Prompt.Status)+" "+a.Answer)
	}
	require.Equal(t, []string{"failed I will\n", "completed well\nsecond\x1b[31m block\n", "unknown "}, answers)

	r = typing(t.Context(), "cut \\", "session", "attach", id, "--api-url", url)
	require.Equal(t, "cut \nsecond[31m block\n", r.stdout, "the end of the input ends a prompt")
	require.Equal(t, result{code: exitDone}, typing(t.Context(), "", "session", "attach", id, "--api-url", url))
	r = typing(t.Context(), "x\n", "session", "attach", store.Put(session.Terminated), "--api-url", url)
	require.Equal(t, exitFailed, r.code)
}

func TestAttachToEndingSession(t *testing.T) {
	t.Parallel()
	store, temporal, url := sessionServer(t, "")
	temporal.Set(func(o *apitest.Signaler) {
		o.OnPrompt = func(id, _ string) {
			store.Status(id, session.Terminated)
			store.With(id, func(r *apitest.Row) { r.Prompts[0].Status = session.PromptCancelled }) // without an event
		}
	})
	r := typing(t.Context(), "hello\n", "session", "attach", store.Put(session.Running), "--api-url", url)
	require.Equal(t, exitFailed, r.code)
	require.Regexp(t, `prompt prm_\w+ ended cancelled; the session has been terminated`, r.stderr)
}

// TestPromptWaitsFromItsOwnPositionOn uses a log whose beginning is not readable.
func TestPromptWaitsFromItsOwnPositionOn(t *testing.T) {
	t.Parallel()
	store, _, url := sessionServer(t, "")
	id := store.Put(session.Running)
	store.With(id, func(r *apitest.Row) { store.Append(r, event.TypePrompt, []string{"not a prompt"}) })
	r := run(t.Context(), "session", "prompt", id, "hello", "--id=p", "--wait", "--api-url", url)
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Equal(t, "hello\nsecond[31m block\n", r.stdout)
	r = run(t.Context(), "session", "prompt", id, "hello", "--id=p", "--wait", "--api-url", url)
	require.Contains(t, r.stderr, "read event 1", "that of a prompt that was sent before may be anywhere")
}

func TestWaitingClientReportsQuestions(t *testing.T) {
	t.Parallel()
	store, temporal, url := sessionServer(t, "")
	temporal.Set(func(o *apitest.Signaler) {
		o.OnPrompt = func(id, promptID string) {
			store.With(id, func(r *apitest.Row) {
				store.Append(r, event.TypeTurnStart, event.TurnStartData{RunID: "run_1", PromptID: promptID, Attempt: 1})
				store.Append(r, event.TypeQuestion, event.QuestionData{Question: resource.QuestionJSON{ID: "que_1", SessionID: id, RunID: "run_1", Title: "May\x1b I?"}})
			})
			store.Prompt(id, promptID, session.PromptCompleted)
		}
	})
	id := store.Put(session.Running)
	for _, args := range [][]string{{"prompt", id, "x", "--wait"}, {"attach", id}} {
		r := typing(t.Context(), "x\n", append([]string{"session", "--api-url", url}, args...)...)
		require.Equal(t, exitDone, r.code, r.stderr)
		require.Equal(t, "the agent waits for an answer: May I?\nto answer: overwinter session answer "+id+" que_1 once|session|always|reject\n",
			firstLines(r.stderr, 2))
	}
}

func TestWaitingClientReportsDelays(t *testing.T) {
	t.Parallel()
	store, temporal, url := sessionServer(t, "")
	report := func(id, code, message string) {
		store.With(id, func(r *apitest.Row) {
			store.Append(r, string(conversation.EventError), conversation.Problem{Code: code, Message: message})
		})
	}
	temporal.Set(func(o *apitest.Signaler) {
		o.OnPrompt = func(id, _ string) {
			report(id, "agent_crashed", "the agent's own")
			report(id, problem.ProvisioningDelayed, "create the sandbox: "+strings.Repeat("x", 160)+" no route")
		}
	})
	id := store.Put(session.Initializing)
	r := run(t.Context(), "session", "prompt", id, "x", "--wait", "--timeout=2s", "--api-url", url)
	require.Equal(t, exitTimeout, r.code, r.stderr)
	require.Regexp(t, "^create the sandbox: x+ no route\nit is retried until it succeeds; overwinter session stop "+id+" ends it\n.*stopped waiting", r.stderr)
	temporal.Set(func(o *apitest.Signaler) {
		o.OnPrompt = func(id, promptID string) {
			store.Status(id, session.Running)
			store.Prompt(id, promptID, session.PromptCompleted)
		}
	})
	r = run(t.Context(), "session", "prompt", id, "y", "--wait", "--api-url", url)
	require.Equal(t, exitDone, r.code, r.stderr)
	require.NotContains(t, r.stderr, "no route", "it is over")
}

func TestFollowTakesAnswersFromFile(t *testing.T) {
	t.Parallel()
	store, _, url := sessionServer(t, "")
	id := store.Put(session.Running)
	permission := question.Asked{Kind: question.Permission, Title: "Bash: ls", ToolName: "Bash"}
	store.Ask(id, question.Asked{Kind: question.Inquiry, Title: "Why?", Inquiries: []question.Item{{Question: "Why?"}}}, time.Hour)
	store.Ask(id, permission, -time.Second) // it can no longer be answered
	store.Ask(id, permission, time.Hour)
	done := make(chan result, 1)
	go func() {
		// The first question is before the position at which following starts.
		done <- typing(t.Context(), "because\nonce\nmaybe\nr why not\n", "session", "follow", id, "--answer", "--after=1", "--api-url", url)
	}()
	require.Eventually(t, func() bool {
		questions := store.Row(id).Questions
		return questions[0].Answer != nil && questions[2].Answer != nil
	}, eventuallyTimeout, eventuallyTick)
	store.Status(id, session.Terminated)
	r := <-done
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "the agent asks: Why?\n")
	require.Contains(t, r.stdout, "answered: Why? because\n")
	require.Contains(t, r.stdout, "the answer came too late: the question is expired already\n")
	require.Contains(t, r.stdout, "answer once, session, always, or reject")
	require.Contains(t, r.stdout, "answered: reject: why not\n")
	require.Equal(t, question.Reject, store.Row(id).Questions[2].Answer.Decision)
}

func TestFilesAndDiff(t *testing.T) {
	t.Parallel()
	store, _, url := sessionServer(t, "")
	id := store.Put(session.Running)
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	store.With(id, func(r *apitest.Row) {
		r.Files = []workspacefile.Content{
			{Info: workspacefile.Info{Path: "a/b\x1b c.txt", Size: 5, SHA256: "x", ModifiedAt: at}, Data: []byte("by\x1btes")},
			{Info: workspacefile.Info{Path: "big", Size: 9e6, ModifiedAt: at, Unsaved: workspacefile.UnsavedTooLarge}},
		}
	})
	program := func(args ...string) result {
		return run(t.Context(), append([]string{"session", "--api-url", url}, args...)...)
	}
	require.Regexp(t, `\n5 +\d+d ago +a/b c.txt\n`, program("files", id).stdout)
	require.Equal(t, "SIZE     MODIFIED                  PATH\n"+
		"5        2026-03-04T05:06:07.000Z  a/b c.txt\n9000000  2026-03-04T05:06:07.000Z  big (not saved: "+string(workspacefile.UnsavedTooLarge)+")\n",
		program("files", id, "--absolute").stdout)
	require.NotContains(t, program("files", id, "--prefix=a/").stdout, "big")
	require.Contains(t, program("files", id, "-o", "json").stdout, `"path": "big"`)
	require.Equal(t, result{stdout: "by\x1btes"}, program("files", id, "a/b\x1b c.txt"), "the bytes as they are where no terminal is")
	require.Contains(t, program("files", id, "big").stderr, "too_large")
	require.Contains(t, program("files", id, "none").stderr, "file_not_found")
	require.Equal(t, exitUsage, program("files", id, "big", "--prefix=b").code)

	require.Equal(t, result{}, program("diff", id), "nothing was compared yet")
	store.With(id, func(r *apitest.Row) {
		r.Diff = &workspacefile.Diff{
			Files:        []workspacefile.Delta{{Path: "a", Change: workspacefile.Modified, Additions: 2, Deletions: 1}, {Path: "p.png", Change: workspacefile.Created, Binary: true}},
			FilesChanged: 2, Additions: 2, Deletions: 1, Patch: []byte("--- a\n+++ b\n"),
			Git: &workspacefile.GitState{Branch: "main", Head: "0123456789abcdef0123456789abcdef01234567", Dirty: true},
		}
	})
	require.Equal(t, result{stdout: "--- a\n+++ b\n"}, program("diff", id))
	require.Equal(t, "modified  +2 -1   a\ncreated   binary  p.png\n", firstLines(program("diff", id, "--stat").stdout, 2))
	require.Contains(t, program("diff", id, "--stat").stdout, "files changed: 2, +2 -1 (main at 0123456789ab, not committed)\n")
	require.Contains(t, program("diff", id, "-o", "json").stdout, `"filesChanged": 2`)
	store.With(id, func(r *apitest.Row) { r.Diff.Truncated = true })
	r := program("diff", id)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "truncated: its first 12 bytes")
}

func firstLines(text string, n int) string {
	return strings.Join(strings.SplitAfter(text, "\n")[:n], "")
}
