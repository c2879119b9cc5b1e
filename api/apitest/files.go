package apitest

import (
	"context"
	"slices"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// FileList implements api.Store. It returns all items in one page.
func (m *Store) FileList(_ context.Context, id, prefix string, _ int, _ string) ([]workspacefile.Info, string, error) {
	leave, err := m.enter("FileList")
	if err != nil {
		return nil, "", err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return nil, "", err
	}
	out := []workspacefile.Info{}
	for _, f := range r.Files {
		if strings.HasPrefix(f.Path, prefix) {
			out = append(out, f.Info)
		}
	}
	return out, "", nil
}

// FileGet implements api.Store.
func (m *Store) FileGet(_ context.Context, id, path string) (workspacefile.Content, error) {
	leave, err := m.enter("FileGet")
	if err != nil {
		return workspacefile.Content{}, err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return workspacefile.Content{}, err
	}
	i := slices.IndexFunc(r.Files, func(f workspacefile.Content) bool { return f.Path == path })
	if i < 0 {
		return workspacefile.Content{}, failure.Errorf(failure.NoFile, "there is no such file in the workspace")
	}
	return r.Files[i], nil
}

// DiffGet implements api.Store.
func (m *Store) DiffGet(_ context.Context, id string) (*workspacefile.Diff, error) {
	leave, err := m.enter("DiffGet")
	if err != nil {
		return nil, err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return nil, err
	}
	return r.Diff, nil
}

// AttachmentGet implements api.Store.
func (m *Store) AttachmentGet(_ context.Context, id, attachmentID string) (attachment.Attachment, error) {
	leave, err := m.enter("AttachmentGet")
	if err != nil {
		return attachment.Attachment{}, err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return attachment.Attachment{}, err
	}
	i := slices.IndexFunc(r.Attachments, func(a attachment.Attachment) bool { return a.ID == attachmentID })
	if i < 0 {
		return attachment.Attachment{}, failure.Errorf(failure.NoAttachment, "there is no such attachment in the session")
	}
	return r.Attachments[i], nil
}
