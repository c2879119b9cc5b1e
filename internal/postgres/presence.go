package postgres

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/presence"
)

// PresenceRenew stores clients as present from now on for a limited time, in one statement. It
// sends no notification.
func (db *DB) PresenceRenew(ctx context.Context, viewers []presence.Viewer, lasts time.Duration) error {
	ctx, cancel := within(ctx, db.options.CallTimeout)
	defer cancel()
	n := len(viewers)
	p := &dbsqlc.PresenceRenewParams{
		Seconds: lasts.Seconds(), Clients: make([]string, n), SessionIds: make([]string, n), UserIds: make([]string, n), Names: make([]string, n),
	}
	for i, v := range viewers {
		p.Clients[i], p.SessionIds[i], p.UserIds[i], p.Names[i] = v.Client, v.SessionID, v.User.ID, v.User.Name
	}
	if err := db.q.PresenceRenew(ctx, db.pool, p); err != nil {
		return fault("renew presences", err)
	}
	return nil
}

// PresenceEnd removes clients.
func (db *DB) PresenceEnd(ctx context.Context, clients []string) error {
	ctx, cancel := within(ctx, db.options.CallTimeout)
	defer cancel()
	if err := db.q.PresenceEnd(ctx, db.pool, clients); err != nil {
		return fault("end presences", err)
	}
	return nil
}

// PresenceRead returns the clients that currently view sessions. Sessions without clients are
// omitted.
func (db *DB) PresenceRead(ctx context.Context, sessionIDs []string) (map[string]presence.Presence, error) {
	ctx, cancel := within(ctx, db.options.CallTimeout)
	defer cancel()
	rows, err := db.q.PresenceRead(ctx, db.pool, sessionIDs)
	if err != nil {
		return nil, fault("read presences", err)
	}
	out := map[string]presence.Presence{}
	for _, row := range rows {
		p := out[row.SessionID]
		p.Clients += int(row.Clients)
		if row.UserID != "" && len(p.Users) < presence.MaxUsers {
			p.Users = append(p.Users, presence.User{ID: row.UserID, Name: row.Name})
		}
		out[row.SessionID] = p
	}
	for _, p := range out { // the database's order depends on its collation
		slices.SortFunc(p.Users, func(a, b presence.User) int { return strings.Compare(a.ID, b.ID) })
	}
	return out, nil
}

// PresenceSweep deletes expired rows of apis that crashed.
func (db *DB) PresenceSweep(ctx context.Context) error {
	ctx, cancel := within(ctx, db.options.CallTimeout)
	defer cancel()
	if err := db.q.PresenceSweep(ctx, db.pool); err != nil {
		return fault("sweep presences", err)
	}
	return nil
}
