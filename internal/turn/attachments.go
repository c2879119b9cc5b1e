package turn

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runnerexec"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// attachmentStore stores the files that are attached to prompts.
type attachmentStore interface {
	AttachmentGet(ctx context.Context, sessionID, id string) (attachment.Attachment, error)
}

// attachmentDir is the workspace directory of a prompt's attachments.
func attachmentDir(promptID string) string {
	return path.Join(workspacefile.AttachmentDir, promptID)
}

// placeAttachments writes the attachments of the prompt into the sandbox, each atomically, and
// holds one at a time in memory. It may be repeated. The directory contains a .gitignore that
// covers it, so git and the watcher skip it.
func (a *attempt) placeAttachments(ctx context.Context) error {
	attachments := a.start.Prompt.Attachments
	if len(attachments) == 0 {
		return nil
	}
	workspace := runner.DefaultPaths().Workspace
	ignore := []byte("*\n")
	files := []runner.PutFile{{
		Path: path.Join(workspace, workspacefile.AttachmentDir, ".gitignore"), Size: int64(len(ignore)),
		Content: func(yield func([]byte, error) bool) { yield(ignore, nil) },
	}}
	var unread error
	for _, at := range attachments {
		files = append(files, runner.PutFile{
			Path: path.Join(workspace, attachmentDir(a.start.Prompt.ID), at.Name), Size: at.Bytes,
			Content: func(yield func([]byte, error) bool) {
				whole, err := a.Store.AttachmentGet(ctx, a.in.SessionID, at.ID)
				if err == nil && int64(len(whole.Data)) != at.Bytes {
					err = fmt.Errorf("it has %d bytes, and %d were accepted", len(whole.Data), at.Bytes)
				}
				if err != nil {
					unread = err
				}
				yield(whole.Data, err)
			},
		})
	}
	if err := runnerexec.Put(ctx, a.sandbox, files); err != nil {
		if unread != nil {
			return Stored(unread)
		}
		return fmt.Errorf("place the attachments of the prompt: %w", err)
	}
	return nil
}

// images returns the images of the prompt, with their bytes if the adapter sends images to the
// agent.
func (a *attempt) images(ctx context.Context) ([]agent.Image, error) {
	images := imagesOf(a.start.Prompt)
	carrier, ok := a.adapter.(agent.ImageCarrier)
	if !ok {
		return images, nil
	}
	room := carrier.CarriesImages(withAttachments(a.start.Prompt))
	for _, at := range a.start.Prompt.Attachments {
		i := slices.IndexFunc(images, func(i agent.Image) bool { return path.Base(i.Path) == at.Name })
		if i < 0 || at.Bytes > room {
			continue
		}
		whole, err := a.Store.AttachmentGet(ctx, a.in.SessionID, at.ID)
		if err != nil {
			return nil, Stored(err)
		}
		images[i].Data = whole.Data
		room -= at.Bytes
	}
	return images, nil
}

// imagesOf returns the attachments that models accept as images.
func imagesOf(p session.Prompt) []agent.Image {
	var out []agent.Image
	for _, at := range p.Attachments {
		switch at.MediaType {
		case "image/png", "image/jpeg", "image/gif", "image/webp":
			out = append(out, agent.Image{
				Path: path.Join(runner.DefaultPaths().Workspace, attachmentDir(p.ID), at.Name), MediaType: at.MediaType,
			})
		}
	}
	return out
}

// withAttachments returns the content of a prompt, followed by the paths of its attachments.
func withAttachments(p session.Prompt) string {
	if len(p.Attachments) == 0 {
		return p.Content
	}
	var b strings.Builder
	b.WriteString(p.Content)
	b.WriteString("\n\nAttached files, relative to the workspace:")
	for _, at := range p.Attachments {
		fmt.Fprintf(&b, "\n- %s (%s, %d bytes)", path.Join(attachmentDir(p.ID), at.Name), at.MediaType, at.Bytes)
	}
	return b.String()
}
