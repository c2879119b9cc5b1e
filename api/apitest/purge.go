package apitest

import (
	"context"
	"time"

	"github.com/overwinter-dev/overwinter/internal/fork"
	"github.com/overwinter-dev/overwinter/internal/purge"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// PurgeRequest implements api.Store.
func (m *Store) PurgeRequest(_ context.Context, id string, _ fork.Policy) (session.Session, error) {
	leave, err := m.enter("PurgeRequest")
	if err != nil {
		return session.Session{}, err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return session.Session{}, err
	}
	if r.Session.Purge == nil {
		r.Session.Purge = &purge.Purge{SessionID: id, State: purge.Stopping, RequestedAt: time.Now()}
	}
	return r.view(), nil
}
