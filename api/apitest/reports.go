package apitest

import (
	"context"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// WorkspaceGit implements api.Store.
func (m *Store) WorkspaceGit(_ context.Context, id string) (*conversation.ObservedGit, error) {
	leave, err := m.enter("WorkspaceGit")
	if err != nil {
		return nil, err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil || r.Diff == nil || r.Diff.Git == nil {
		return nil, err
	}
	g := r.Diff.Git
	return &conversation.ObservedGit{Branch: g.Branch, Head: g.Head, Dirty: g.Dirty, Base: r.Diff.Base, At: r.Diff.At}, nil
}

// ReportsGet implements api.Store.
func (m *Store) ReportsGet(_ context.Context, id string) (conversation.Reports, error) {
	leave, err := m.enter("ReportsGet")
	if err != nil {
		return conversation.Reports{}, err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return conversation.Reports{}, err
	}
	return r.Reports, nil
}

// ScreenshotList implements api.Store. It returns all items in one page.
func (m *Store) ScreenshotList(_ context.Context, id string, _ int, _ string) ([]conversation.Shown, string, error) {
	leave, err := m.enter("ScreenshotList")
	if err != nil {
		return nil, "", err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return nil, "", err
	}
	return r.Screenshots, "", nil
}
