package activities_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// many connects the activities to a provider with many sandboxes. The last orphans of them have no
// row, and the sessions of the first moved continue without theirs.
func (b *harness) many(t *testing.T, sandboxes, orphans, moved int) *modalPages {
	t.Helper()
	installation, err := b.db.Installation(b.ctx)
	require.NoError(t, err)
	b.insertMany(t, sandboxes-orphans)
	b.sql(t, `UPDATE sessions SET generation = 2 WHERE id IN (SELECT id FROM sessions WHERE generation = 1 ORDER BY id LIMIT $1)`, moved)
	m := &modalPages{sandboxes: sandboxes, installation: installation}
	b.config.Sandbox = serveModalPages(t, m)
	b.config.CallTimeout = callTimeout
	b.build()
	return m
}

// statements counts the statements of a reconciliation, and samples the memory in use meanwhile.
type statements struct {
	activities.Store
	n      atomic.Int64
	sample func()
}

func (s *statements) SandboxesAbandoned(ctx context.Context, age time.Duration, after session.SandboxKey, limit int) ([]session.SandboxRow, error) {
	s.n.Add(1)
	return s.Store.SandboxesAbandoned(ctx, age, after, limit)
}

func (s *statements) SandboxesUnowned(ctx context.Context, keys []session.SandboxKey) ([]int, error) {
	s.n.Add(1)
	return s.Store.SandboxesUnowned(ctx, keys)
}

func (s *statements) SandboxesPage(ctx context.Context, after session.SandboxKey, limit int) ([]session.SandboxRow, error) {
	s.n.Add(1)
	rows, err := s.Store.SandboxesPage(ctx, after, limit)
	s.sample()
	return rows, err
}

func (s *statements) SandboxesSeen(ctx context.Context, seen []session.SandboxSeen) error {
	if len(seen) > 0 {
		s.n.Add(1)
	}
	return s.Store.SandboxesSeen(ctx, seen)
}

// TestReconcileHandlesManySandboxes uses a server of Modal's protocol through Modal's SDK.
// The number of calls and statements is bounded, unchanged rows are not written, and the memory in
// use grows with the number of sandboxes by no more than their hashes. A run of all tests has 20,000
// sandboxes, -all-faults has 50,000.
func TestReconcileHandlesManySandboxes(t *testing.T) { //nolint:paralleltest // it measures memory
	peak := func(sandboxes int) int64 {
		const orphans, moved = 20, 20
		b := setupMemory(t)
		m := b.many(t, sandboxes, orphans, moved)
		var most, before runtime.MemStats
		var mu sync.Mutex
		sample := func() {
			var now runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&now)
			mu.Lock()
			defer mu.Unlock()
			if now.HeapAlloc > most.HeapAlloc {
				most = now
			}
		}
		m.onPage = func(_ context.Context, page, _ int) error {
			if page%50 == 0 {
				sample()
			}
			return nil
		}
		counted := &statements{Store: b.config.Store, sample: sample}
		b.config.Store = counted
		b.build()
		_, err := b.reconcile() // connections are made, orphans are ended
		require.NoError(t, err)
		require.Equal(t, orphans+moved, m.hasEnded())
		calls := m.took()
		require.LessOrEqual(t, calls["SandboxListV2"], sandboxes/modalPage+2)
		require.Equal(t, orphans+moved, calls["SandboxTerminateV2"])
		require.Zero(t, calls["SandboxTagsGetV2"])

		counted.n.Store(0)
		runtime.GC()
		runtime.ReadMemStats(&before)
		most = before
		began := time.Now()
		found, err := b.reconcile()
		took := time.Since(began)
		require.NoError(t, err)
		require.Equal(t, activities.Reconciled{Listed: sandboxes - orphans - moved}, found)
		calls = m.took()
		require.LessOrEqual(t, calls["SandboxListV2"], sandboxes/modalPage+2)
		require.Equal(t, map[string]int{"SandboxListV2": calls["SandboxListV2"]}, calls)
		require.LessOrEqual(t, counted.n.Load(), int64(sandboxes/1000+sandboxes/5000+4))
		var written int64
		b.query(t, &written, `SELECT count(*) FROM sandboxes WHERE seen_at IS NOT NULL`)
		require.Zero(t, written, "nothing has changed")
		require.Less(t, took, 2*time.Minute, "the interval is 30s where nothing else runs")
		grown := int64(most.HeapAlloc) - int64(before.HeapAlloc)
		t.Logf("%d sandboxes: %v, %d calls, %d statements, %d KiB more memory in use at most, %d MiB allocated",
			sandboxes, took, calls["SandboxListV2"], counted.n.Load(), grown>>10, (most.TotalAlloc-before.TotalAlloc)>>20)
		return grown
	}
	few, many := 5_000, 20_000
	if *allFaults {
		few, many = 10_000, 50_000
	}
	grown := peak(many) - peak(few)
	require.Less(t, grown, int64(4<<20), "memory per sandbox that is listed: %d bytes", grown/int64(many-few))
}

// TestReconcileSurvivesFailedListPage makes pages of the list fail. The SDK retries a page that
// fails or takes too long. If the page keeps failing, the sandboxes listed before it are ended, and
// so are those named by rows; the health of the others stays unknown.
func TestReconcileSurvivesFailedListPage(t *testing.T) {
	t.Parallel()
	const sandboxes, orphans, moved = 1000, 5, 5
	for name, fault := range map[string]struct {
		onPage   func(ctx context.Context, page, before int) error
		complete bool
	}{
		"Twice": {complete: true, onPage: func(_ context.Context, page, before int) error {
			if page == 3 && before < 2 {
				return status.Error(codes.Unavailable, "injected")
			}
			return nil
		}},
		"Slow": {complete: true, onPage: func(ctx context.Context, page, before int) error {
			if page == 3 && before == 0 {
				<-ctx.Done()
			}
			return nil
		}},
		"ForGood": {onPage: func(_ context.Context, page, _ int) error {
			if page == 3 {
				return status.Error(codes.Unavailable, "injected")
			}
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupMemory(t)
			m := b.many(t, sandboxes, orphans, moved)
			m.onPage = fault.onPage
			found, err := b.reconcile()
			require.Equal(t, orphans+moved, m.hasEnded())
			require.Empty(t, b.signals.all(), "all others run")
			if fault.complete {
				require.NoError(t, err)
				require.GreaterOrEqual(t, found.Listed, sandboxes-moved)
				return
			}
			requirePassing(t, err)
			require.Less(t, m.took()["SandboxWaitV2"], sandboxes/10, "only those that were ended are asked about")
		})
	}
}

// TestFailedTerminationsDoNotDelayOthers makes more terminations fail than there are parallel
// calls. The sandboxes that cannot be terminated are listed first.
func TestFailedTerminationsDoNotDelayOthers(t *testing.T) {
	t.Parallel()
	const sandboxes, orphans, stuck = 500, 100, 40
	b := setupMemory(t)
	m := b.many(t, sandboxes, orphans, 0)
	var mu sync.Mutex
	var order []int
	m.onEnd = func(ctx context.Context, n int) error {
		mu.Lock()
		order = append(order, n)
		mu.Unlock()
		if n > sandboxes-stuck {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	_, err := b.reconcile()
	requirePassing(t, err)
	require.Equal(t, orphans-stuck, m.hasEnded(), "all but those that cannot be")

	// Later reconciliations retry them after everything else.
	b.sql(t, `UPDATE sandboxes SET ended_at = now(), status = 'terminated' WHERE sandbox_id = 'sb-many1'`)
	mu.Lock()
	order = nil
	mu.Unlock()
	_, err = b.reconcile()
	requirePassing(t, err)
	mu.Lock()
	require.Equal(t, 1, order[0])
	require.Greater(t, len(order), stuck)
	mu.Unlock()
	m.onEnd = nil
	found, err := b.reconcile()
	require.NoError(t, err)
	require.Equal(t, stuck, found.Terminated)
	require.Equal(t, orphans+1, m.hasEnded())
}
