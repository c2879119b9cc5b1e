package apitest

import (
	"context"
	"io"
	"iter"
	"time"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Archive sets the archive of a bundle and its state.
func (m *Store) Archive(bundleID string, state bundle.ArchiveState, content []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := bundle.Archive{ID: "arc_" + bundleID, BundleID: bundleID, State: state, Bytes: int64(len(content)), ExpiresAt: time.Now().Add(bundle.ArchiveLife)}
	if state == bundle.ArchiveFailed {
		a.Reason = "the snapshot was deleted"
	}
	m.archives[bundleID], m.contents[a.ID] = a, content
}

// Imported returns the last import, and its archive.
func (m *Store) Imported() (bundle.Import, []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.imported, m.contents[m.imported.Session.ID]
}

// ArchiveRequest implements api.Store.
func (m *Store) ArchiveRequest(_ context.Context, bundleID string) (bundle.Archive, error) {
	return m.archive("ArchiveRequest", bundleID, true)
}

// ArchiveShow implements api.Store.
func (m *Store) ArchiveShow(_ context.Context, bundleID string) (bundle.Archive, error) {
	return m.archive("ArchiveShow", bundleID, false)
}

func (m *Store) archive(method, bundleID string, request bool) (a bundle.Archive, err error) {
	var owner string
	if _, err := m.bundle(method, bundleID, func(r *Row, _ *bundle.View) { owner = r.Session.ID }); err != nil {
		return a, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	a, ok := m.archives[bundleID]
	switch {
	case !ok && !request:
		return a, failure.Errorf(failure.IllegalState, "the archive of bundle %s has not been requested", bundleID)
	case !ok:
		a = bundle.Archive{BundleID: bundleID, State: bundle.ArchivePending, ExpiresAt: time.Now().Add(bundle.ArchiveLife)}
		m.archives[bundleID] = a
	}
	a.MemoryID = owner
	return a, nil
}

// ArchiveContent implements api.Store.
func (m *Store) ArchiveContent(_ context.Context, id string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		leave, err := m.enter("ArchiveContent")
		if err != nil {
			yield(nil, err)
			return
		}
		content := m.contents[id]
		leave()
		for len(content) > 0 {
			n := min(1000, len(content))
			if !yield(content[:n], nil) {
				return
			}
			content = content[n:]
		}
	}
}

// SessionImport implements api.Store.
func (m *Store) SessionImport(_ context.Context, in bundle.Import, archive io.Reader, idem session.Idempotency) (session.Session, bool, error) {
	content, err := io.ReadAll(archive)
	if err != nil {
		return session.Session{}, false, err
	}
	leave, err := m.enter("SessionImport")
	if err != nil {
		return session.Session{}, false, err
	}
	defer leave()
	if idem.Key != "" {
		if have, ok := m.keys[idem.Key]; ok && have.Digest != idem.Digest {
			return session.Session{}, false, failure.Errorf(failure.Idempotency, "the idempotency key was used for another request")
		} else if ok {
			return m.rows[m.made[idem.Key]].view(), false, nil
		}
		m.keys[idem.Key], m.made[idem.Key] = idem, in.Session.ID
	}
	made := in.Session
	made.Status, made.CreatedAt = session.Hibernated, time.Now()
	m.rows[made.ID] = &Row{Session: made, First: 1}
	m.imported, m.contents[made.ID] = in, content
	return m.rows[made.ID].view(), true, nil
}

// ArchiveOwn marks a bundle as having no files, so that its archive needs no worker.
func (m *Store) ArchiveOwn(bundleID string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.archives[bundleID] = bundle.Archive{BundleID: bundleID, State: bundle.ArchiveReady}
}
