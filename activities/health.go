package activities

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// health looks whether the sandboxes run that sessions own. A look whose time is over is continued by this
// worker's next one, so that no row is always the last.
func (l *look) health(ctx context.Context, listed []sandbox.Listing) error {
	running := make(map[string]bool, len(listed))
	for _, s := range listed {
		running[s.ID] = true
	}
	var failed []error
	from := l.cursors.health()
	for after, wrapped := from, from == (session.SandboxKey{}); ; {
		rows, err := l.Store.SandboxesPage(ctx, after, reconcilePage)
		if err == nil {
			err = l.healthPage(ctx, rows, running)
		}
		failed = append(failed, err)
		if err != nil && ctx.Err() != nil {
			l.cursors.setHealth(after)
			return errors.Join(failed...)
		}
		if len(rows) == reconcilePage {
			last := rows[len(rows)-1]
			after = session.SandboxKey{SessionID: last.SessionID, Generation: last.Generation}
			continue
		}
		if wrapped {
			l.cursors.setHealth(session.SandboxKey{})
			return errors.Join(failed...)
		}
		after, wrapped = session.SandboxKey{}, true
	}
}

// healthPage looks at one page of rows. What has changed is written in one statement.
func (l *look) healthPage(ctx context.Context, rows []session.SandboxRow, running map[string]bool) error {
	var (
		mu   sync.Mutex
		seen []session.SandboxSeen
	)
	failed := each(ctx, rows, func(ctx context.Context, row session.SandboxRow) error {
		if forsaken(row) {
			return nil
		}
		status, err := l.check(ctx, row, running)
		if err != nil || status == "" || status == row.Health {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, session.SandboxSeen{
			SandboxKey: session.SandboxKey{SessionID: row.SessionID, Generation: row.Generation}, Status: status,
		})
		return nil
	})
	return errors.Join(failed, l.Store.SandboxesSeen(ctx, seen))
}

// check looks whether the sandbox of a session that still owns it runs, and
// returns its health; "" where nothing is known.
func (l *look) check(ctx context.Context, row session.SandboxRow, running map[string]bool) (session.SandboxStatus, error) {
	switch {
	case row.SandboxID == "":
		return "", nil // being created; TerminateSandbox or the next generation ends it
	case running[row.SandboxID]:
		if row.ReadyAt.IsZero() {
			return session.SandboxStarting, nil
		}
		return session.SandboxReady, nil
	}
	// A listing may lag behind: ask about this one before calling it dead.
	status, err := l.Sandbox.Open(row.SandboxID).Poll(ctx)
	if err != nil && sandbox.CodeOf(err) != sandbox.Gone {
		return "", err
	}
	if err == nil && status.Running {
		return "", nil
	}
	l.count(func(out *Reconciled) { out.Reported++ })
	return session.SandboxUnhealthy, l.Tell.SandboxEnded(ctx, row.SessionID, session.SandboxSignal{
		Generation: row.Generation, SandboxID: row.SandboxID, Reason: cmp.Or(status.Reason, "the provider does not list it any more"),
		Limit: status.Limit,
	})
}

// cursors are where this worker's next look continues.
type cursors struct {
	mu    sync.Mutex
	row   session.SandboxKey
	audit string
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
