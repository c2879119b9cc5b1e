package localmodal_test

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	modal "github.com/modal-labs/modal-client/go"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/localmodal"
	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/localmodal/localmodaltest"
)

// waitLimit bounds every wait of a test, and longLife a whole test. Waits are short on an idle
// machine, but the tests of all packages share it.
const (
	waitLimit = 2 * time.Minute
	longLife  = 10 * time.Minute
)

// bundle is a server with an SDK client and the test's own app.
type bundle struct {
	t      testing.TB
	ctx    context.Context
	server *localmodal.Server
	shared bool // used by other tests
	client *modal.Client
	app    *modal.App
	image  *modal.Image
}

func setup(t testing.TB) *bundle {
	t.Helper()
	s, err := shared.get()
	require.NoError(t, err)
	b := connect(t, s)
	b.shared = true
	return b
}

// alone is setup with a server that no other test uses.
func alone(t testing.TB) *bundle {
	t.Helper()
	return connect(t, localmodaltest.Start(t, options(t, "")))
}

// testLevel names the variable with the isolation level of a process's tests. Default: the best
// level.
const testLevel = "LOCALMODAL_TEST_ISOLATION"

// options returns options for the level under test. The data directory is temporary unless one is
// given.
func options(t testing.TB, dir string) localmodal.Options {
	t.Helper()
	level, err := box.ParseIsolation(os.Getenv(testLevel))
	require.NoError(t, err)
	return localmodal.Options{DataDir: dir, Isolation: level}
}

// lacks reports whether the level under test declares that it lacks the ability; it logs the
// reason.
func (b *bundle) lacks(a box.Ability) bool {
	b.t.Helper()
	for _, l := range b.server.Lacks() {
		if l.Ability == a {
			b.t.Logf("isolation %q declares: %s", b.server.Isolation(), l)
			return true
		}
	}
	return false
}

func connect(t testing.TB, s *localmodal.Server) *bundle {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), longLife)
	t.Cleanup(cancel)
	b := &bundle{t: t, ctx: ctx, server: s, client: localmodaltest.Client(t, s.URL(), s.Token())}
	app, err := b.client.Apps.FromName(ctx, appOf(t), &modal.AppFromNameParams{CreateIfMissing: true})
	require.NoError(t, err)
	b.app, b.image = app, b.client.Images.FromRegistry("debian:12", nil)
	return b
}

// appOf returns the name of the test's app.
func appOf(t testing.TB) string {
	t.Helper()
	return strings.ReplaceAll(t.Name(), "/", "-")
}

func (b *bundle) create(p *modal.SandboxCreateParams) *modal.Sandbox {
	b.t.Helper()
	return b.createFrom(b.image, p)
}

func (b *bundle) createFrom(im *modal.Image, p *modal.SandboxCreateParams) *modal.Sandbox {
	b.t.Helper()
	if p == nil {
		p = &modal.SandboxCreateParams{}
	}
	sb, err := b.client.Sandboxes.Create(b.ctx, b.app, im, p)
	require.NoError(b.t, err)
	return b.handle(sb)
}

// handle ensures that the handle's connection does not outlive the test, nor the sandbox on a
// shared server.
func (b *bundle) handle(sb *modal.Sandbox) *modal.Sandbox {
	b.t.Cleanup(func() {
		if b.shared {
			_, _ = sb.Terminate(b.ctx, nil) // the sandbox may have ended, or never have started
		}
		require.NoError(b.t, sb.Detach())
	})
	return sb
}

// result is the result of a process.
type result struct {
	code           int
	stdout, stderr string
}

func (b *bundle) exec(sb *modal.Sandbox, p *modal.SandboxExecParams, stdin string, args ...string) result {
	b.t.Helper()
	process, err := sb.Exec(b.ctx, args, p)
	require.NoError(b.t, err)
	if stdin != "" {
		_, err = io.WriteString(process.Stdin, stdin)
		require.NoError(b.t, err)
	}
	require.NoError(b.t, process.Stdin.Close())
	stdout, err := io.ReadAll(process.Stdout)
	require.NoError(b.t, err)
	stderr, err := io.ReadAll(process.Stderr)
	require.NoError(b.t, err)
	code, err := process.Wait(b.ctx, nil)
	require.NoError(b.t, err)
	return result{code, string(stdout), string(stderr)}
}

// sh runs a shell script that must succeed and returns its output.
func (b *bundle) sh(sb *modal.Sandbox, script string) string {
	b.t.Helper()
	r := b.exec(sb, nil, "", "sh", "-c", script)
	require.Zero(b.t, r.code, "%s\n%s", script, r.stderr)
	return r.stdout
}

// try runs a process that the sandbox may not outlive.
func (b *bundle) try(sb *modal.Sandbox, args ...string) {
	if process, err := sb.Exec(b.ctx, args, nil); err == nil {
		_, _ = process.Wait(b.ctx, nil)
	}
}

func (b *bundle) snapshot(sb *modal.Sandbox) *modal.Image {
	b.t.Helper()
	im, err := sb.SnapshotFilesystem(b.ctx, &modal.SandboxSnapshotFilesystemParams{Timeout: waitLimit, TTL: modal.NoExpiryTTL})
	require.NoError(b.t, err)
	return im
}

// hurry calls do with growing limits, in whole seconds as a provider accepts them, until do returns
// within its limit. Results of earlier calls are ignored.
func hurry(do func(limit time.Duration)) {
	for limit := time.Second; ; limit *= 2 {
		began := time.Now()
		do(limit)
		if time.Since(began) < limit {
			return
		}
	}
}

func (b *bundle) terminate(sb *modal.Sandbox) {
	b.t.Helper()
	_, err := sb.Terminate(b.ctx, nil)
	require.NoError(b.t, err)
}
