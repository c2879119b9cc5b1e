package activities

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/overwinter-dev/overwinter/internal/image"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// reapStore finds the sandboxes without an owner.
type reapStore interface {
	// SandboxesAbandoned lists sandboxes older than age that their session no longer uses.
	SandboxesAbandoned(ctx context.Context, age time.Duration, after session.SandboxKey, limit int) ([]session.SandboxRow, error)
	// SandboxesUnowned returns the indexes of the keys without an open sandbox.
	SandboxesUnowned(ctx context.Context, keys []session.SandboxKey) ([]int, error)
	ExitImageExpect(ctx context.Context, e image.Exit) error
}

const (
	// listPage is how many listed sandboxes are compared with the rows in one statement.
	listPage = 1000
	// reapQueue is how many sandboxes may wait to be ended before the listing is delayed.
	reapQueue = 4096
	// maxStuck is how many sandboxes that could not be ended a worker remembers.
	maxStuck = 10_000
)

// abandoned reports whether a session no longer uses the sandbox of its row.
func abandoned(row session.SandboxRow) bool {
	return !row.Current || row.Status == session.Hibernated || row.Status == session.Terminated
}

// sandboxSet holds an 8-byte hash of each ID. The seed changes with each reconciliation, so that a
// collision, which makes an ended sandbox look like a running one, does not last.
type sandboxSet struct {
	seed   maphash.Seed
	hashes map[uint64]struct{}
}

func newSandboxSet() *sandboxSet {
	return &sandboxSet{seed: maphash.MakeSeed(), hashes: map[uint64]struct{}{}}
}

func (s *sandboxSet) add(id string) { s.hashes[maphash.String(s.seed, id)] = struct{}{} }

func (s *sandboxSet) has(id string) bool {
	_, ok := s.hashes[maphash.String(s.seed, id)]
	return ok
}

// reap ends the sandboxes that their sessions no longer use, and those that the provider lists
// without an open row. It ends them while the listing continues, and returns all listed ones; an
// incomplete listing is listErr. A sandbox that the previous reconciliation could not end is tried
// after all others.
func (l *look) reap(ctx context.Context) (running *sandboxSet, listErr, err error) {
	r := &reaper{look: l, jobs: make(chan reaping, reapQueue), known: l.cursors.stuckBefore(), stuck: map[string]struct{}{}, byRows: newSandboxSet()}
	running = newSandboxSet()
	var workers, sources errgroup.Group
	for range reconcileParallel {
		workers.Go(func() error {
			for job := range r.jobs {
				r.end(ctx, job)
			}
			return nil
		})
	}
	sources.Go(func() error { r.failures.add(r.rows(ctx)); return nil })
	sources.Go(func() error { listErr = r.list(ctx, running); return nil })
	_ = sources.Wait() // errors are collected
	close(r.jobs)
	_ = workers.Wait()
	_ = each(ctx, r.late, func(ctx context.Context, job reaping) error { r.end(ctx, job); return nil })
	l.cursors.setStuck(r.stuck)
	return running, listErr, r.failures.err()
}

// reaper ends sandboxes in parallel.
type reaper struct {
	*look
	jobs     chan reaping
	known    map[string]struct{} // the previous reconciliation could not end them
	failures failures

	mu     sync.Mutex
	late   []reaping
	stuck  map[string]struct{}
	byRows *sandboxSet // sandboxes named by rows, which may be listed after their rows are ended
}

// reaping is a sandbox to end: that of a row, or a listed one.
type reaping struct {
	row    session.SandboxRow
	listed sandbox.Listing // if the row is empty
}

func (r reaping) key() string {
	if r.listed.ID != "" {
		return r.listed.ID
	}
	return session.SandboxName(r.row.SessionID, r.row.Generation)
}

// add queues a sandbox to be ended.
func (r *reaper) add(ctx context.Context, job reaping) error {
	key := job.key()
	if _, ok := r.known[key]; ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.late = append(r.late, job) // there are maxStuck at most
		r.stuck[key] = struct{}{}
		return nil
	}
	select {
	case r.jobs <- job:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *reaper) end(ctx context.Context, job reaping) {
	if ctx.Err() != nil {
		r.failures.add(context.Cause(ctx))
		return
	}
	callCtx, cancel := context.WithTimeout(ctx, r.CallTimeout)
	defer cancel()
	var err error
	if job.listed.ID == "" {
		err = r.look.end(callCtx, job.row, "no session owns it")
	} else {
		err = r.endListed(callCtx, job.listed)
	}
	r.failures.add(err)
	if err == nil {
		r.count(func(out *Reconciled) { out.Terminated++ })
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch key := job.key(); {
	case err == nil:
		delete(r.stuck, key)
	case len(r.stuck) < maxStuck && ctx.Err() == nil:
		r.stuck[key] = struct{}{}
	}
}

// rows finds the sandboxes that their sessions no longer use. A young one is skipped, because an
// activity may be about to end it.
func (r *reaper) rows(ctx context.Context) error {
	for after := (session.SandboxKey{}); ; {
		rows, err := r.store.SandboxesAbandoned(ctx, r.OrphanAge, after, reconcilePage)
		if err != nil {
			return err
		}
		for _, row := range rows {
			r.rowNames(row)
			if err := r.add(ctx, reaping{row: row}); err != nil {
				return err
			}
		}
		if len(rows) < reconcilePage {
			return nil
		}
		last := rows[len(rows)-1]
		after = session.SandboxKey{SessionID: last.SessionID, Generation: last.Generation}
	}
}

func (r *reaper) rowNames(row session.SandboxRow) {
	if row.SandboxID == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byRows.add(row.SandboxID)
}

// named reports whether a listed sandbox is ended for its row in this look.
func (r *reaper) named(s sandbox.Listing) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byRows.has(s.ID)
}

// list reads the running sandboxes from the provider, and finds those without an open row: the
// session was terminated, or the row was ended without the sandbox. A row is written before its
// sandbox is created, so every listed sandbox has had one.
func (r *reaper) list(ctx context.Context, running *sandboxSet) error {
	var page []sandbox.Listing
	compare := func() {
		if len(page) > 0 {
			r.failures.add(r.unowned(ctx, page))
			page = page[:0]
		}
	}
	defer compare()
	for s, err := range r.Sandbox.List(ctx) {
		if err != nil {
			return err
		}
		r.count(func(out *Reconciled) { out.Listed++ })
		running.add(s.ID)
		if s.Role != "" { // builders end soon by themselves
			continue
		}
		s.Tags = nil
		if page = append(page, s); len(page) == listPage {
			compare()
		}
	}
	return nil
}

func (r *reaper) unowned(ctx context.Context, page []sandbox.Listing) error {
	keys := make([]session.SandboxKey, len(page))
	for i, s := range page {
		keys[i] = session.SandboxKey{SessionID: s.Session, Generation: s.Generation}
	}
	unowned, err := r.store.SandboxesUnowned(ctx, keys)
	if err != nil {
		return err
	}
	for _, i := range unowned {
		if r.named(page[i]) {
			continue
		}
		if err := r.add(ctx, reaping{listed: page[i]}); err != nil {
			return err
		}
	}
	return nil
}

func (l *look) endListed(ctx context.Context, s sandbox.Listing) error {
	err := l.store.ExitImageExpect(ctx, image.Exit{SandboxID: s.ID, SessionID: s.Session, Generation: s.Generation})
	if err != nil {
		return err
	}
	if err := l.Sandbox.Open(s.ID).Terminate(ctx); err != nil {
		return err
	}
	l.Logger.WarnContext(ctx, "terminated a sandbox that no session owned",
		slog.String("sandbox_id", s.ID), slog.String("session_id", s.Session), slog.Int64("generation", s.Generation))
	return nil
}

// failures collects the errors of parallel calls: the first ones, and the number of the others.
type failures struct {
	mu    sync.Mutex
	first []error
	more  int
}

func (f *failures) add(err error) {
	if err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.first) < reconcileErrors {
		f.first = append(f.first, err)
	} else {
		f.more++
	}
}

func (f *failures) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.more > 0 {
		return errors.Join(append(f.first[:len(f.first):len(f.first)], omittedErrors(f.more))...)
	}
	return errors.Join(f.first...)
}
