package localmodal_test

import (
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	modal "github.com/modal-labs/modal-client/go"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

func (b *bundle) list(p *modal.SandboxListParams) []string {
	b.t.Helper()
	sandboxes, err := b.client.Sandboxes.List(b.ctx, p)
	require.NoError(b.t, err)
	ids := []string{}
	for sb, err := range sandboxes {
		require.NoError(b.t, err)
		ids = append(ids, sb.SandboxID)
		require.NoError(b.t, sb.Detach())
	}
	return ids
}

func TestNamesAreUniqueAmongRunningSandboxes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb := b.create(&modal.SandboxCreateParams{Name: "s-g1"})
	_, err := b.client.Sandboxes.Create(b.ctx, b.app, b.image, &modal.SandboxCreateParams{Name: "s-g1"})
	var exists modal.AlreadyExistsError
	require.ErrorAs(t, err, &exists)

	other, err := b.client.Apps.FromName(b.ctx, "other", &modal.AppFromNameParams{CreateIfMissing: true})
	require.NoError(t, err)
	elsewhere, err := b.client.Sandboxes.Create(b.ctx, other, b.image, &modal.SandboxCreateParams{Name: "s-g1"})
	require.NoError(t, err)
	b.handle(elsewhere)

	found, err := b.client.Sandboxes.FromName(b.ctx, appOf(t), "s-g1", nil)
	require.NoError(t, err)
	require.Equal(t, sb.SandboxID, b.handle(found).SandboxID)

	b.terminate(sb)
	_, err = b.client.Sandboxes.FromName(b.ctx, appOf(t), "s-g1", nil)
	var notFound modal.NotFoundError
	require.ErrorAs(t, err, &notFound)
	found, err = b.client.Sandboxes.FromName(b.ctx, appOf(t), "s-g1", &modal.SandboxFromNameParams{IncludeTerminated: true})
	require.NoError(t, err)
	require.Equal(t, sb.SandboxID, b.handle(found).SandboxID)
	b.create(&modal.SandboxCreateParams{Name: "s-g1"})
}

func TestOneOfManyCreatesGetsName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.image.Build(b.ctx, b.app, nil) // the SDK's images cannot be shared before they are built
	require.NoError(t, err)
	var mu sync.Mutex
	var won []*modal.Sandbox
	var g errgroup.Group
	for range 8 {
		g.Go(func() error {
			sb, err := b.client.Sandboxes.Create(b.ctx, b.app, b.image, &modal.SandboxCreateParams{Name: "only"})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won = append(won, sb)
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	require.Len(t, won, 1)
	b.handle(won[0])
}

func TestTags(t *testing.T) {
	t.Parallel()
	b := alone(t)
	one := b.create(&modal.SandboxCreateParams{Tags: map[string]string{"session": "1", "gen": "1"}})
	two := b.create(&modal.SandboxCreateParams{Tags: map[string]string{"session": "2", "gen": "1"}})
	require.Equal(t, []string{one.SandboxID}, b.list(&modal.SandboxListParams{AppID: b.app.AppID, Tags: map[string]string{"session": "1"}}))
	require.Equal(t, []string{two.SandboxID, one.SandboxID}, b.list(&modal.SandboxListParams{Tags: map[string]string{"gen": "1"}}))
	require.NoError(t, one.SetTags(b.ctx, map[string]string{"gen": "2"}, nil))
	tags, err := one.GetTags(b.ctx, nil)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"gen": "2"}, tags)
	require.Empty(t, b.list(&modal.SandboxListParams{Tags: map[string]string{"session": "1"}}))
	b.terminate(two)
	require.Equal(t, []string{one.SandboxID}, b.list(&modal.SandboxListParams{AppID: b.app.AppID}))
}

// Fifty concurrently, and more in total than a page contains.
func TestManySandboxesAtOnceAreListedOnceEach(t *testing.T) {
	t.Parallel()
	b := alone(t)
	_, err := b.image.Build(b.ctx, b.app, nil)
	require.NoError(t, err)
	const count = 105
	ids := make([]string, count)
	var g errgroup.Group
	g.SetLimit(50)
	for i := range ids {
		g.Go(func() error {
			sb, err := b.client.Sandboxes.Create(b.ctx, b.app, b.image, &modal.SandboxCreateParams{Name: fmt.Sprint("n", i)})
			if err != nil {
				return err
			}
			ids[i] = sb.SandboxID
			return sb.Detach()
		})
	}
	require.NoError(t, g.Wait())
	require.ElementsMatch(t, ids, b.list(&modal.SandboxListParams{AppID: b.app.AppID}))
}

func TestLifetimeEndsSandbox(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var sb *modal.Sandbox
	var code *int
	hurry(func(limit time.Duration) {
		var err error
		sb = b.create(&modal.SandboxCreateParams{Timeout: limit, Command: []string{"sleep", "1000"}})
		code, err = sb.Poll(b.ctx, nil)
		require.NoError(t, err)
	})
	require.Nil(t, code)
	ended, err := sb.Wait(b.ctx, nil)
	require.NoError(t, err)
	require.Equal(t, 124, ended)
}

func TestIdleTimeoutEndsUnusedSandboxOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var sb *modal.Sandbox
	var use *modal.ContainerProcess
	var err error
	hurry(func(limit time.Duration) {
		sb = b.create(&modal.SandboxCreateParams{IdleTimeout: limit, Command: []string{"sleep", "1000"}})
		use, err = sb.Exec(b.ctx, []string{"sleep", fmt.Sprint(1.5 * limit.Seconds())}, nil)
	})
	require.NoError(t, err)
	code, err := use.Wait(b.ctx, nil)
	require.NoError(t, err)
	require.Zero(t, code, "a process is a use")
	code, err = sb.Wait(b.ctx, nil)
	require.NoError(t, err)
	require.Equal(t, 137, code)
}

func TestSandboxEndsWithItsCommand(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb := b.create(&modal.SandboxCreateParams{Command: []string{"sh", "-c", "echo out; echo err >&2; exit 7"}})
	code, err := sb.Wait(b.ctx, nil)
	require.NoError(t, err)
	require.Equal(t, 7, code)
	stdout, err := io.ReadAll(sb.Stdout)
	require.NoError(t, err)
	require.Equal(t, "out\n", string(stdout))
}

func TestTerminateKillsEverything(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb := b.create(nil)
	marker := "sleep-" + sb.SandboxID
	b.sh(sb, "cp /usr/bin/sleep /tmp/"+marker+"; setsid /tmp/"+marker+" 1000 >/dev/null 2>&1 </dev/null & ")
	require.Eventually(t, func() bool { return processes(t, marker) == 1 }, waitLimit, 10*time.Millisecond)
	b.terminate(sb)
	require.Zero(t, processes(t, marker))
	code, err := sb.Terminate(b.ctx, &modal.SandboxTerminateParams{Wait: true})
	require.NoError(t, err)
	require.Equal(t, 137, code)
	_, err = sb.Exec(b.ctx, []string{"true"}, nil)
	require.Error(t, err)
}

// TestEndingSandboxIsNotListedAsRunning: a caller whose process was killed queries whether the
// sandbox has ended.
func TestEndingSandboxIsNotListedAsRunning(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 10 {
		sb := b.create(&modal.SandboxCreateParams{Command: []string{"sleep", "1000"}})
		process, err := sb.Exec(b.ctx, []string{"sleep", "1000"}, nil)
		require.NoError(t, err)
		var ending errgroup.Group
		ending.Go(func() error {
			_, err := sb.Terminate(b.ctx, nil)
			return err
		})
		_, _ = process.Wait(b.ctx, nil) // it ends with the sandbox, with any result
		code, err := sb.Poll(b.ctx, nil)
		require.NoError(t, err)
		require.NotNil(t, code, "the sandbox is said to run")
		require.NoError(t, ending.Wait())
	}
}

func TestUnknownSandbox(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb, err := b.client.Sandboxes.FromID(b.ctx, "sb-ABCDEFGHIJKLMNOPQRSTUVWXYZ", nil)
	require.NoError(t, err)
	_, err = b.handle(sb).Poll(b.ctx, nil)
	require.Error(t, err)
}

func TestUnsupportedRequestsAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, p := range map[string]*modal.SandboxCreateParams{
		"gpu":      {GPU: "A100"},
		"too long": {Timeout: 25 * time.Hour},
	} {
		_, err := b.client.Sandboxes.Create(b.ctx, b.app, b.image, p)
		require.Error(t, err, name)
	}
	require.Empty(t, b.list(&modal.SandboxListParams{AppID: b.app.AppID}))
}
