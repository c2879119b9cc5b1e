package activities_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/localmodal"
	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/localmodal/localmodaltest"
	"github.com/overwinter-dev/overwinter/internal/memorytest"
	"github.com/overwinter-dev/overwinter/internal/problem"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/sandbox/modalsandbox"
	"github.com/overwinter-dev/overwinter/internal/secret"
)

// setupLimited has a local Modal with those limits.
func setupLimited(t *testing.T, limits box.Limits) (*harness, string) {
	t.Helper()
	dir := memorytest.Dir(t)
	t.Cleanup(func() { require.NoError(t, localmodaltest.Unlock(dir)) })
	server := localmodaltest.Start(t, localmodal.Options{DataDir: dir, Limits: limits})
	drv, err := modalsandbox.New(modalsandbox.Config{ServerURL: server.URL(), TokenID: server.Token().ID, TokenSecret: secret.NewValue(server.Token().Secret)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, drv.Close()) })
	return newBundle(t, drv), dir
}

// fill writes 256 MiB in the background.
func (b *harness) fill(t *testing.T, ready activities.SandboxReady) {
	t.Helper()
	_, err := b.provider.Open(ready.SandboxID).Run(b.ctx, sandbox.RunSpec{
		Argv: []string{"sh", "-c", "head -c 256M /dev/zero >/fill 2>/dev/null &"}, Timeout: time.Minute,
	})
	require.NoError(t, err)
}

func TestPromptFailsIfSandboxExceedsDisk(t *testing.T) {
	t.Parallel()
	b, dir := setupLimited(t, box.Limits{Disk: 128 << 20})
	ready := b.create(t)
	in := b.claim(t, ready, "sleep 10m")
	turn := b.begin(t, in)
	b.await(t, in.RunID, "block_start")
	b.fill(t, ready)
	_, err := b.untilFinal(t, in, turn)
	requireType(t, activities.SandboxLimit, err)
	require.ErrorContains(t, err, "disk: the sandbox has written more than its limit of 128.0 MiB of disk")

	// The transcripts of the sandbox survive, its files do not, and an event reports why.
	b.remember(t, "what was said")
	saved, err := b.rescue(ready)
	require.NoError(t, err)
	require.NotEmpty(t, saved.BundleID)
	require.Empty(t, b.head(t).SnapshotID)
	problems := b.of(t, "", string(conversation.EventError))
	require.Len(t, problems, 1)
	var reported conversation.Problem
	require.NoError(t, json.Unmarshal(problems[0].Data, &reported))
	require.Equal(t, problem.SandboxLimit, reported.Code)
	require.Contains(t, reported.Message, "disk: the sandbox has written more than its limit of 128.0 MiB")
	require.Eventually(t, func() bool {
		boxes, err := os.ReadDir(filepath.Join(dir, "boxes"))
		require.NoError(t, err)
		trash, err := os.ReadDir(filepath.Join(dir, "trash"))
		require.NoError(t, err)
		return len(boxes) == 0 && len(trash) == 0
	}, waitLimit, 10*time.Millisecond, "its files are deleted")
}

func TestReconcilerNamesExceededLimit(t *testing.T) {
	t.Parallel()
	b, _ := setupLimited(t, box.Limits{Disk: 128 << 20})
	ready := b.create(t)
	b.fill(t, ready)
	require.Eventually(t, func() bool {
		status, err := b.provider.Open(ready.SandboxID).Poll(b.ctx)
		require.NoError(t, err)
		return !status.Running
	}, waitLimit, 10*time.Millisecond)
	_, err := b.reconcile()
	require.NoError(t, err)
	signals := b.signals.signals
	require.Len(t, signals, 1)
	require.Equal(t, "disk", signals[0].Limit)
	require.Contains(t, signals[0].Reason, "limit of 128.0 MiB of disk")
}
