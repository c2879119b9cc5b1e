package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestSessionIsForkedAndItsAnswerAwaited(t *testing.T) {
	t.Parallel()
	store, _, url := sessionServer(t, "")
	id, bundleID := store.Put(session.Running), session.NewID(session.BundlePrefix)
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
		r.Bundles = []bundle.View{{Bundle: bundle.Bundle{ID: bundleID, SessionID: id}, PromptID: "p2"}}
	})
	answered := call("fork", id, "--after", "p2", "--prompt", "hello", "--wait", "--timeout=1m")
	require.Equal(t, exitDone, answered.code, answered.stderr)
	require.Contains(t, answered.stderr, "session "+session.SessionPrefix)

	file := filepath.Join(t.TempDir(), "notes.txt")
	require.NoError(t, os.WriteFile(file, []byte("one"), 0o600))
	var twice [2]string
	for i := range twice {
		r := call("fork", id, "--after", "p2", "--prompt", "read", "--attach", file, "--idempotency-key", "k1")
		require.Equal(t, exitDone, r.code, r.stderr)
		twice[i], _, _ = strings.Cut(r.stdout, "\n")
	}
	require.Equal(t, twice[0], twice[1], "the same key and flags again are the same fork")
	require.Equal(t, exitUsage, call("fork", id, "--attach", file).code)

	shown := call("fork", id, "--bundle", bundleID)
	require.Equal(t, exitDone, shown.code, shown.stderr)
	require.Regexp(t, `forked from +`+id+` \(`+bundleID+`\)`, shown.stdout)
	tree := call("tree", id)
	require.Equal(t, exitDone, tree.code, tree.stderr)
	require.Contains(t, tree.stdout, "after p2")
}
