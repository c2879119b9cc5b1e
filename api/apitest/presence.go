package apitest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/presence"
)

// PresenceRenew implements api.Store.
func (m *Store) PresenceRenew(_ context.Context, viewers []presence.Viewer, _ time.Duration) error {
	leave, err := m.enter("PresenceRenew")
	if err != nil {
		return err
	}
	defer leave()
	for _, v := range viewers {
		m.present[v.Client] = v
	}
	return nil
}

// PresenceEnd implements api.Store.
func (m *Store) PresenceEnd(_ context.Context, clients []string) error {
	leave, err := m.enter("PresenceEnd")
	if err != nil {
		return err
	}
	defer leave()
	for _, client := range clients {
		delete(m.present, client)
	}
	return nil
}

// PresenceRead implements api.Store.
func (m *Store) PresenceRead(_ context.Context, sessionIDs []string) (map[string]presence.Presence, error) {
	leave, err := m.enter("PresenceRead")
	if err != nil {
		return nil, err
	}
	defer leave()
	out := map[string]presence.Presence{}
	for _, v := range m.present {
		if !slices.Contains(sessionIDs, v.SessionID) {
			continue
		}
		p := out[v.SessionID]
		p.Clients++
		if v.User.ID != "" && !slices.ContainsFunc(p.Users, func(u presence.User) bool { return u.ID == v.User.ID }) {
			p.Users = append(p.Users, v.User)
			slices.SortFunc(p.Users, func(a, b presence.User) int { return strings.Compare(a.ID, b.ID) })
		}
		out[v.SessionID] = p
	}
	return out, nil
}

// PresenceSweep implements api.Store.
func (m *Store) PresenceSweep(context.Context) error { return nil }
