package activities_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// crowd is a provider with very many sandboxes, of which it only makes the listing.
type crowd struct {
	driver.Driver
	listed []driver.Listing

	mu         sync.Mutex
	terminated map[string]bool
}

func (c *crowd) List(context.Context, map[string]string) ([]driver.Listing, error) {
	return c.listed, nil
}

func (c *crowd) Terminate(_ context.Context, id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.terminated[id] = true
	return nil
}

// TestOneLookAtManySandboxes: what no session owns is ended within the look, however
// many there are.
func TestOneLookAtManySandboxes(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	const sandboxes, orphans, moved = 50_000, 20, 20
	b.sql(t, `
		INSERT INTO sessions (id, status, agent, lazy, created_at, last_activity_at, idle_timeout_ns, metadata, options, generation, running_since)
		SELECT 'ses_' || lpad(n::text, 32, '0'), 'running', 'demo', true, now(), now(), 1, '{}', '{}', 1, now() FROM generate_series(1, $1::int) n`, sandboxes)
	b.sql(t, `
		INSERT INTO sandboxes (session_id, generation, sandbox_id, image_id, status, reserved_at, ready_at)
		SELECT id, 1, 'sb-' || id, 'im-1', 'ready', now() - interval '1 hour', now() FROM sessions WHERE generation = 1`)
	b.sql(t, `UPDATE sessions SET generation = 2 WHERE id IN (SELECT id FROM sessions WHERE generation = 1 ORDER BY id DESC LIMIT $1)`, moved)
	installation, err := b.db.Installation(b.ctx)
	require.NoError(t, err)
	all := &crowd{Driver: b.memory, terminated: map[string]bool{}}
	for n := range sandboxes + orphans {
		id := fmt.Sprintf("ses_%032d", n+1)
		all.listed = append(all.listed, driver.Listing{ID: "sb-" + id, Name: session.SandboxName(id, 1), Tags: map[string]string{
			sandbox.TagInstallation: installation, sandbox.TagSession: id, sandbox.TagGeneration: "1",
		}})
	}
	b.config.Sandbox = sandbox.NewProvider(all, sandbox.Options{Installation: installation})
	b.build()
	var writes int64
	written := func() (n int64) {
		b.query(t, &n, `SELECT count(*) FROM sandboxes WHERE seen_at IS NOT NULL`)
		return n
	}
	for range 2 {
		began := time.Now()
		found, err := b.reconcile()
		require.NoError(t, err)
		t.Logf("a look at %d sandboxes took %v: %+v", sandboxes, time.Since(began), found)
		require.Equal(t, sandboxes+orphans, found.Listed)
		writes += written()
	}
	require.Zero(t, writes, "nothing has changed")
	require.Len(t, all.terminated, orphans+moved)
}
