package parrot

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// Parse reads transcripts. It skips a truncated line.
func (Adapter) Parse(files []transcript.File) (conversation.Conversation, error) {
	var folder conversation.Folder
	for _, f := range files {
		var r reader
		for line := range bytes.Lines(f.Data) {
			var l record
			if json.Unmarshal(line, &l) != nil || l.Run == "" {
				continue
			}
			for _, e := range r.read(l, l.At) {
				folder.Add(e)
			}
		}
		for _, e := range r.Cut(time.Time{}) {
			folder.Add(e)
		}
	}
	return folder.Conversation(), nil
}
