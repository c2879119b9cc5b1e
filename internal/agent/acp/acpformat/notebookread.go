package acpformat

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// Recorded returns the conversation in notebooks. It skips lines that are not notes.
func Recorded(files []transcript.File) conversation.Conversation {
	files = slices.Clone(files)
	slices.SortStableFunc(files, func(a, b transcript.File) int { return cmp.Compare(a.Path, b.Path) })
	var folder conversation.Folder
	for _, f := range files {
		var r Recorder
		for line := range bytes.Lines(f.Data) {
			n, ok := stdio.ParseNote(line)
			if !ok {
				continue
			}
			for _, e := range r.note(n) {
				folder.Add(e)
			}
		}
		for _, e := range r.Cut(time.Time{}) {
			folder.Add(e)
		}
	}
	return folder.Conversation()
}

// note reads a line of the notebook. Blocks still open when a turn begins or ends are aborted.
func (r *Recorder) note(n stdio.Note) []conversation.Event {
	switch n.Type {
	case stdio.NoteRun, NoteEnd:
		return r.Cut(time.Time{})
	case NoteBlock:
		var b conversation.Block
		if !Decode(n.Data, &b) || b.ID == "" {
			return nil
		}
		if !b.Status.Open() {
			return r.Show("", b, b.CreatedAt)
		}
		if o := r.Find(b.ID); o != nil {
			o.Block = b
			return []conversation.Event{o.Started(b.CreatedAt)}
		}
		return r.Start(&OpenBlock{Entry: ledger.Entry{Block: b}}, b.CreatedAt)
	}
	return nil
}
