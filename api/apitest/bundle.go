package apitest

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// BundleList implements api.Store.
func (m *Store) BundleList(_ context.Context, id string, limit int, cursor string) ([]bundle.View, string, error) {
	leave, err := m.enter("BundleList")
	if err != nil {
		return nil, "", err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return nil, "", err
	}
	items := slices.Clone(r.Bundles)
	slices.Reverse(items)
	from, err := strconv.Atoi("0" + cursor)
	if err != nil || from > len(items) {
		return nil, "", failure.Errorf(failure.Invalid, "the cursor was not returned with a page")
	}
	items = items[from:]
	if len(items) > limit {
		return items[:limit], strconv.Itoa(from + limit), nil
	}
	return items, "", nil
}

// BundleShow implements api.Store.
func (m *Store) BundleShow(_ context.Context, id string) (bundle.View, error) {
	return m.bundle("BundleShow", id, func(*Row, *bundle.View) {})
}

// BundlePin implements api.Store.
func (m *Store) BundlePin(_ context.Context, id string, pinned bool) (bundle.View, error) {
	return m.bundle("BundlePin", id, func(_ *Row, v *bundle.View) {
		if v.PinnedAt = (time.Time{}); pinned {
			v.PinnedAt = time.Now()
		}
	})
}

// ConversationAt implements api.Store.
func (m *Store) ConversationAt(_ context.Context, id string, _ int, _ string) (c conversation.Conversation, next string, err error) {
	_, err = m.bundle("ConversationAt", id, func(r *Row, v *bundle.View) {
		c = r.Conversation
		c.Seq = v.LastSeq
	})
	return c, "", err
}

// BundleFileList implements api.Store. A bundle has the current files of its session.
func (m *Store) BundleFileList(ctx context.Context, id, prefix string, limit int, cursor string) ([]workspacefile.Info, string, error) {
	v, err := m.bundleFiles("BundleFileList", id)
	if err != nil {
		return nil, "", err
	}
	return m.FileList(ctx, v.SessionID, prefix, limit, cursor)
}

// BundleFileGet implements api.Store.
func (m *Store) BundleFileGet(ctx context.Context, id, path string) (workspacefile.Content, error) {
	v, err := m.bundleFiles("BundleFileGet", id)
	if err != nil {
		return workspacefile.Content{}, err
	}
	return m.FileGet(ctx, v.SessionID, path)
}

// BundleDiffGet implements api.Store.
func (m *Store) BundleDiffGet(ctx context.Context, id string) (*workspacefile.Diff, error) {
	v, err := m.bundleFiles("BundleDiffGet", id)
	if err != nil {
		return nil, err
	}
	return m.DiffGet(ctx, v.SessionID)
}

func (m *Store) bundleFiles(method, id string) (bundle.View, error) {
	v, err := m.bundle(method, id, func(*Row, *bundle.View) {})
	if err == nil && v.SnapshotID == "" {
		err = failure.Errorf(failure.NotSaved, "bundle %s has no files", id)
	}
	return v, err
}

func (m *Store) bundle(method, id string, use func(*Row, *bundle.View)) (bundle.View, error) {
	leave, err := m.enter(method)
	if err != nil {
		return bundle.View{}, err
	}
	defer leave()
	for _, r := range m.rows {
		for i := range r.Bundles {
			if r.Bundles[i].ID == id {
				use(r, &r.Bundles[i])
				return r.Bundles[i], nil
			}
		}
	}
	return bundle.View{}, failure.Errorf(failure.NoBundle, "there is no bundle %s", id)
}
