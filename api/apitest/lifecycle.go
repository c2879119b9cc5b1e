package apitest

import (
	"context"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/lifecycle"
)

// Happened adds a lifecycle event.
func (m *Store) Happened(e lifecycle.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.Position = m.lifecycleKept + int64(len(m.lifecycle)) + 1
	m.lifecycle = append(m.lifecycle, e)
}

// ForgetLifecycle deletes the oldest lifecycle events.
func (m *Store) ForgetLifecycle(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lifecycleKept += int64(n)
	m.lifecycle = m.lifecycle[n:]
}

// LifecycleReads returns how often lifecycle events were read.
func (m *Store) LifecycleReads() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lifecycleReads
}

// LifecycleNumber implements api.Store.
func (m *Store) LifecycleNumber(context.Context) (bool, error) {
	leave, err := m.enter("LifecycleNumber")
	if err != nil {
		return false, err
	}
	leave()
	return false, nil
}

// LifecycleNewest implements api.Store.
func (m *Store) LifecycleNewest(context.Context) (int64, error) {
	leave, err := m.enter("LifecycleNewest")
	if err != nil {
		return 0, err
	}
	defer leave()
	return m.lifecycleKept + int64(len(m.lifecycle)), nil
}

// LifecycleRead implements api.Store.
func (m *Store) LifecycleRead(_ context.Context, after int64, filter lifecycle.Filter, limit int) (lifecycle.Page, error) {
	leave, err := m.enter("LifecycleRead")
	if err != nil {
		return lifecycle.Page{}, err
	}
	defer leave()
	m.lifecycleReads++
	newest := m.lifecycleKept + int64(len(m.lifecycle))
	switch {
	case after > newest:
		return lifecycle.Page{}, &eventlog.FuturePositionError{Newest: newest}
	case after < m.lifecycleKept:
		return lifecycle.Page{}, &eventlog.PositionGoneError{First: m.lifecycleKept + 1}
	}
	page := lifecycle.Page{Position: after}
	for _, e := range m.lifecycle[after-m.lifecycleKept:] {
		if len(page.Events) == limit {
			break
		}
		page.Position = e.Position
		if filter.Selects(e) {
			page.Events = append(page.Events, e)
		}
	}
	page.CaughtUp = page.Position == newest
	return page, nil
}
