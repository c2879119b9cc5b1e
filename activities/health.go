package activities

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// healthStore stores the open sandboxes and their health.
type healthStore interface {
	// SandboxesPage lists open sandboxes after a key, in the order of their keys.
	SandboxesPage(ctx context.Context, after session.SandboxKey, limit int) ([]session.SandboxRow, error)
	// SandboxesSeen stores the current health of sandboxes. A sandbox with an unchanged status is
	// not written.
	SandboxesSeen(ctx context.Context, seen []session.SandboxSeen) error
}

// health checks whether the sandboxes of sessions run. If its time is up, this worker's next
// reconciliation continues after the last checked row, so that every row gets its turn.
func (l *look) health(ctx context.Context, running *sandboxSet) error {
	var failed failures
	from := l.cursors.health()
	for after, wrapped := from, from == (session.SandboxKey{}); ; {
		rows, err := l.store.SandboxesPage(ctx, after, reconcilePage)
		if err == nil {
			after, err = l.healthPage(ctx, after, rows, running)
		}
		failed.add(err)
		if err != nil && ctx.Err() != nil {
			l.cursors.setHealth(after)
			return failed.err()
		}
		if len(rows) == reconcilePage {
			continue
		}
		if wrapped {
			l.cursors.setHealth(session.SandboxKey{})
			return failed.err()
		}
		after, wrapped = session.SandboxKey{}, true
	}
}

// healthPage checks one page of rows and returns the last checked row. Changes are written in one
// statement.
func (l *look) healthPage(ctx context.Context, after session.SandboxKey, rows []session.SandboxRow, running *sandboxSet) (session.SandboxKey, error) {
	var (
		mu       sync.Mutex
		seen     []session.SandboxSeen
		unlisted []session.SandboxRow
	)
	see := func(row session.SandboxRow, status session.SandboxStatus) {
		if status == "" || status == row.Health {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, session.SandboxSeen{SandboxKey: keyOf(row), Status: status})
	}
	for _, row := range rows {
		switch {
		case abandoned(row):
		case row.SandboxID == "": // being created; TerminateSandbox or the next generation ends it
		case running.has(row.SandboxID) && row.ReadyAt.IsZero():
			see(row, session.SandboxStarting)
		case running.has(row.SandboxID):
			see(row, session.SandboxReady)
		default:
			unlisted = append(unlisted, row)
		}
	}
	begun, failed := eachFirst(ctx, unlisted, func(ctx context.Context, row session.SandboxRow) error {
		status, err := l.check(ctx, row)
		if err == nil {
			see(row, status)
		}
		return err
	})
	switch {
	case begun < len(unlisted) && begun > 0:
		after = keyOf(unlisted[begun-1])
	case begun == len(unlisted) && len(rows) > 0:
		after = keyOf(rows[len(rows)-1])
	}
	// The results are stored even if the time is up.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), seenTimeout)
	defer cancel()
	return after, errors.Join(failed, l.store.SandboxesSeen(ctx, seen))
}

// seenTimeout bounds the statement that stores the health of a page.
const seenTimeout = 10 * time.Second

func keyOf(row session.SandboxRow) session.SandboxKey {
	return session.SandboxKey{SessionID: row.SessionID, Generation: row.Generation}
}

// check asks the provider about a session's sandbox that was not listed, since a list may be out of
// date, and returns its health; "" if it is not known.
func (l *look) check(ctx context.Context, row session.SandboxRow) (session.SandboxStatus, error) {
	pollCtx, cancel := context.WithTimeout(ctx, l.CallTimeout)
	defer cancel()
	status, err := l.Sandbox.Open(row.SandboxID).Poll(pollCtx)
	if err != nil && sandbox.CodeOf(err) != sandbox.Gone {
		return "", err
	}
	if err == nil && status.Running {
		return "", nil
	}
	l.count(func(out *Reconciled) { out.Reported++ })
	return session.SandboxUnhealthy, l.Signaler.SignalSandbox(ctx, row.SessionID, contract.SandboxSignal{
		Generation: row.Generation, SandboxID: row.SandboxID, Reason: cmp.Or(status.Reason, "the provider does not list it any more"),
		Limit: status.Limit,
	})
}

// cursors are the positions at which this worker's next reconciliation continues.
type cursors struct {
	mu    sync.Mutex
	row   session.SandboxKey
	audit string
	stuck map[string]struct{} // sandboxes that could not be ended
}

func (c *cursors) stuckBefore() map[string]struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stuck
}

func (c *cursors) setStuck(stuck map[string]struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stuck = stuck
}

func (c *cursors) health() session.SandboxKey {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.row
}

func (c *cursors) setHealth(row session.SandboxKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.row = row
}
