package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

func TestAgentReportsArePrinted(t *testing.T) {
	t.Parallel()
	store, _, url := sessionServer(t, "")
	id := store.Put(session.Hibernated)
	call := func(args ...string) result {
		return run(t.Context(), append(append([]string{"session"}, args...), "--api-url", url)...)
	}
	require.Equal(t, result{stdout: "no repository is known\n"}, call("git", id))
	require.Equal(t, result{stdout: "ATTACHMENT  BYTES  SHOWN  DESCRIPTION\n"}, call("screenshots", id))
	at := time.Now().Add(-time.Hour)
	store.With(id, func(r *apitest.Row) {
		r.Diff = &workspacefile.Diff{Git: &workspacefile.GitState{Head: "0123456789abcdef0123456789abcdef01234567", Dirty: true}, At: at}
		r.Reports = conversation.Reports{
			Git: &conversation.Reported[conversation.GitState]{Value: conversation.GitState{Branch: "fix\n\x1b", BaseBranch: "main", CommitCount: 2, Commit: "c1"}, At: at},
			PullRequest: &conversation.Reported[conversation.PullRequest]{
				Value: conversation.PullRequest{Title: "The fix", Number: 7, State: "open", URL: "https://example.com/7"}, FirstAt: at, At: at,
			},
		}
		r.Screenshots = []conversation.Shown{{
			Screenshot: conversation.Screenshot{Image: conversation.Image{ID: "att_1", Bytes: 70}, Description: "the\npage"}, Seq: 9, At: at,
		}}
	})
	git := call("git", id)
	require.Equal(t, exitDone, git.code, git.stderr)
	require.Regexp(t, `(?m)^workspace +detached at 0123456789ab +not committed +1h`, git.stdout)
	require.Regexp(t, `(?m)^agent +fix.* at c1 +2 commits for main +1h`, git.stdout)
	require.Regexp(t, `(?m)^pull request +#7 The fix +open https://example.com/7 +1h`, git.stdout)
	require.NotContains(t, git.stdout, "\x1b")
	require.Contains(t, call("git", id, "-o", "json").stdout, `"commitCount": 2`)
	shots := call("screenshots", id)
	require.Regexp(t, `(?m)^att_1 +70 +1h.* +the page$`, shots.stdout)
	require.Contains(t, call("screenshots", id, "-o", "json").stdout, `"nextCursor"`)
}

func TestReviewIsRequestedAndAwaited(t *testing.T) {
	t.Parallel()
	store, _, url := sessionServer(t, "")
	id := store.Put(session.Running)
	call := func(args ...string) result {
		return run(t.Context(), append(append([]string{"session"}, args...), "--api-url", url)...)
	}
	asked := call("review", id, "the tests", "--id", "look")
	require.Equal(t, exitDone, asked.code, asked.stderr)
	require.Contains(t, asked.stdout, "look")
	require.Contains(t, store.Row(id).Prompts[0].Content, "\nthe tests\n")
	again := call("review", id, "the tests", "--id", "look", "--wait", "--timeout=1m")
	require.Equal(t, exitDone, again.code, again.stderr)
	require.Len(t, store.Row(id).Prompts, 1)
}
