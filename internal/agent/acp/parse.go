package acp

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Parse reads the journals that the bridge has written; other files belong to the agent, and only it
// knows what they say. Lines that are no note are skipped; it never fails.
func (Adapter) Parse(files []session.TranscriptFile) (conversation.Conversation, error) {
	files = slices.Clone(files)
	slices.SortStableFunc(files, func(a, b session.TranscriptFile) int { return cmp.Compare(a.Path, b.Path) })
	var folder conversation.Folder
	for _, f := range files {
		var r recorder
		for line := range bytes.Lines(f.Data) {
			n, ok := stdio.ParseNote(line)
			if !ok {
				continue
			}
			for _, e := range r.note(n) {
				folder.Add(e)
			}
		}
		for _, e := range r.cut(time.Time{}) {
			folder.Add(e)
		}
	}
	return folder.Conversation(), nil
}

// note reads a line of the journal. What is open when a turn begins or ends died with it.
func (r *recorder) note(n stdio.Note) []conversation.Event {
	switch n.Type {
	case stdio.NoteRun, noteEnd:
		return r.cut(time.Time{})
	case noteBlock:
		var b conversation.Block
		if !Decode(n.Data, &b) || b.ID == "" {
			return nil
		}
		if !b.Status.Open() {
			return []conversation.Event{r.settle(b, b.CreatedAt)}
		}
		if o := r.find(b.ID); o != nil {
			o.Block = b
			return []conversation.Event{event(conversation.EventBlockStart, conversation.BlockStart{Block: b}, b.CreatedAt)}
		}
		return r.start(&openBlock{Block: b}, b.CreatedAt)
	}
	return nil
}
