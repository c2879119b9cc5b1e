package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestASessionIsForkedAndItsAnswerAwaited(t *testing.T) {
	t.Parallel()
	store, _, url := sessionServer(t, "")
	id, bundle := store.Put(session.Running), session.NewID(session.BundlePrefix)
	call := func(args ...string) result {
		return run(t.Context(), append(append([]string{"session"}, args...), "--api-url", url)...)
	}

	none := call("fork", id)
	require.NotEqual(t, exitDone, none.code)
	require.Contains(t, none.stderr, "has no bundle yet; save one with session sync or hibernate")
	alone := call("fork", id, "--wait")
	require.Equal(t, exitUsage, alone.code)
	require.Contains(t, alone.stderr, "--wait needs --prompt")

	store.With(id, func(r *apitest.Row) {
		r.Bundles = []session.BundleView{{Bundle: session.Bundle{ID: bundle, SessionID: id}, PromptID: "p2"}}
	})
	answered := call("fork", id, "--after", "p2", "--prompt", "hello", "--wait", "--timeout=1m")
	require.Equal(t, exitDone, answered.code, answered.stderr)
	require.Contains(t, answered.stderr, "session "+session.SessionPrefix)

	shown := call("fork", id, "--bundle", bundle)
	require.Equal(t, exitDone, shown.code, shown.stderr)
	require.Regexp(t, `forked from +`+id+` \(`+bundle+`\)`, shown.stdout)
	tree := call("tree", id)
	require.Equal(t, exitDone, tree.code, tree.stderr)
	require.Contains(t, tree.stdout, "after p2")
}
