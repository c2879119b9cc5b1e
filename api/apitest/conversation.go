package apitest

import (
	"context"
	"iter"
	"slices"
	"strconv"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// ConversationTail implements api.Store. The tail is the whole conversation.
func (m *Store) ConversationTail(_ context.Context, id string, _ int64, _ int) (string, int64, error) {
	leave, err := m.enter("ConversationTail")
	if err != nil {
		return "", 0, err
	}
	defer leave()
	_, err = m.get(id)
	return "", 0, err
}

// ConversationPage implements api.Store. It returns the row's conversation or, if the row has none,
// the fold of its events. A cursor is the number of blocks in earlier pages.
func (m *Store) ConversationPage(_ context.Context, id string, limit int, cursor string) (conversation.Conversation, string, error) {
	leave, err := m.enter("ConversationPage")
	if err != nil {
		return conversation.Conversation{}, "", err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return conversation.Conversation{}, "", err
	}
	c := r.Conversation
	if len(c.Threads) == 0 {
		var folder conversation.Folder
		for _, e := range r.Events {
			if err := folder.Apply(conversation.EventType(e.Type), e.ConversationID, e.Data); err != nil {
				return conversation.Conversation{}, "", err
			}
		}
		c = folder.Conversation()
	}
	from := 0
	if cursor != "" {
		if from, err = strconv.Atoi(cursor); err != nil {
			return conversation.Conversation{}, "", failure.Errorf(failure.Invalid, "the cursor was not returned with a page")
		}
	}
	page := conversation.Conversation{Seq: r.First + int64(len(r.Events)) - 1}
	n := 0
	for _, thread := range c.Threads {
		shown := conversation.Thread{ID: thread.ID}
		for _, b := range thread.Blocks {
			if n++; n > from && n <= from+limit {
				shown.Blocks = append(shown.Blocks, b)
			}
		}
		if len(shown.Blocks) > 0 || thread.ID == conversation.Main || len(thread.Blocks) == 0 && from == 0 {
			page.Threads = append(page.Threads, shown)
		}
	}
	if n > from+limit {
		return page, strconv.Itoa(from + limit), nil
	}
	return page, "", nil
}

// TranscriptPositions implements api.Store.
func (m *Store) TranscriptPositions(_ context.Context, id string) ([]transcript.Position, error) {
	leave, err := m.enter("TranscriptPositions")
	if err != nil {
		return nil, err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return nil, err
	}
	var out []transcript.Position
	for _, f := range r.Transcripts {
		out = append(out, transcript.Position{Path: f.Path, Version: f.Version, Size: int64(len(f.Data))})
	}
	return out, nil
}

// TranscriptContent implements api.Store, in pieces of seven bytes.
func (m *Store) TranscriptContent(ctx context.Context, id string, p transcript.Position) iter.Seq2[[]byte, error] {
	return m.TranscriptFrom(ctx, id, p, 0)
}

// TranscriptFrom implements api.Store, in pieces of seven bytes.
func (m *Store) TranscriptFrom(_ context.Context, id string, p transcript.Position, from int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		data, err := m.transcript(id, p)
		if err != nil {
			yield(nil, err)
			return
		}
		for piece := range slices.Chunk(data[from:], 7) {
			if !yield(piece, nil) {
				return
			}
		}
	}
}

func (m *Store) transcript(id string, p transcript.Position) ([]byte, error) {
	leave, err := m.enter("TranscriptContent")
	if err != nil {
		return nil, err
	}
	defer leave()
	r, err := m.get(id)
	if err != nil {
		return nil, err
	}
	for _, f := range r.Transcripts {
		if f.Path == p.Path {
			return f.Data[:p.Size], nil
		}
	}
	return nil, failure.Errorf(failure.IllegalState, "the transcript is no longer stored")
}
