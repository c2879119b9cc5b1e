package opencodebridge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/opencode/opencodeformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
)

// steer is a prompt added to the turn that the agent has not accepted. The agent stores it as a
// message at once, and accepts it with its next answer.
type steer struct {
	command   stdio.Command
	messageID string
	sent      time.Time
	// held are the events about its message. They are printed when the agent accepts the prompt, so
	// that it has the same position as in the transcript, and a declined prompt is never shown.
	held [][]byte
}

// steer adds a prompt to the running turn. A second line for the same prompt is ignored.
func (b *driver) steer(ctx context.Context, c stdio.Command) {
	t := b.turn
	if t == nil || t.runID != c.RunID {
		b.decline(c)
		return
	}
	if t.given[c.PromptID] {
		return
	}
	t.given[c.PromptID] = true
	if t.interrupted || t.timedOut || t.failed != nil { // a command of the agent, such as a compaction, accepts no prompts
		b.decline(c)
		return
	}
	mark, now, newest := opencodeformat.SteerMark(c.RunID, c.PromptID), time.Now(), max(t.last, t.answer)
	for _, s := range t.steers {
		newest = max(newest, s.messageID)
	}
	s := &steer{command: c, messageID: markedID("msg", mark, now, newest), sent: now}
	t.steers = append(t.steers, s)
	_, err := b.server.quick(ctx, http.MethodPost, route(b.root, "/prompt_async"), promptBody{
		MessageID: s.messageID, Model: b.chosen(),
		Parts: []part{{ID: markedID("prt", mark, now, ""), Type: opencodeformat.PartText, Text: c.Content}},
	})
	if err == nil {
		return
	}
	fmt.Fprintf(b.stderr, "opencode bridge: a prompt for the running turn: %v\n", err)
	if refused, ok := errors.AsType[*statusError](err); ok && refused.code/100 == 4 {
		b.drop(s)
	} // otherwise the agent may have it
}

// drop declines a prompt that the agent does not have.
func (b *driver) drop(s *steer) {
	b.turn.steers = slices.DeleteFunc(b.turn.steers, func(o *steer) bool { return o == s })
	b.decline(s.command)
}

// decline reports that the agent has not accepted a prompt.
func (b *driver) decline(c stdio.Command) {
	b.out.Note(stdio.Note{Type: stdio.NoteDeclined, RunID: c.RunID, ID: c.PromptID})
}

// about contains the fields of an event that concern a message.
type about struct {
	Type       string `json:"type"`
	Properties struct {
		SessionID string                 `json:"sessionID"`
		MessageID string                 `json:"messageID"`
		Info      opencodeformat.Message `json:"info"`
		Part      struct {
			MessageID string `json:"messageID"`
		} `json:"part"`
	} `json:"properties"`
}

// hold holds an event about a prompt that the agent has not accepted, and reports whether it did.
// If the event is an answer with which the agent accepts prompts, it prints their events first.
func (b *driver) hold(ctx context.Context, data []byte) bool {
	t := b.turn
	if t == nil || len(t.steers) == 0 || isDelta(data) {
		return false
	}
	var e about
	if json.Unmarshal(data, &e) != nil {
		return false
	}
	id := e.Properties.MessageID
	switch e.Type {
	case "message.updated":
		if m := &e.Properties.Info; !m.FromUser() && e.Properties.SessionID == b.root {
			if b.taken(m) && (t.interrupted || t.timedOut) {
				b.abort(ctx) // it has started on a prompt that arrived while it was being stopped
			}
			return false
		}
		id = e.Properties.Info.ID
	case "message.part.updated":
		id = e.Properties.Part.MessageID
	}
	for _, s := range t.steers {
		if id == s.messageID {
			s.held = append(s.held, data)
			return true
		}
	}
	return false
}

// taken prints the events about the prompts that an answer accepts, and reports whether there are
// any.
func (b *driver) taken(answer *opencodeformat.Message) bool {
	before := len(b.turn.steers)
	b.turn.steers = slices.DeleteFunc(b.turn.steers, func(s *steer) bool {
		if !answer.Takes(s.messageID) {
			return false
		}
		for _, data := range s.held {
			b.out.Raw(data)
		}
		return true
	})
	return len(b.turn.steers) < before
}

// settleSteers deletes, from the idle agent, the prompts that it has not accepted, and reports
// whether none is left. The agent may be about to start on one that arrived when it had just
// finished.
func (b *driver) settleSteers(ctx context.Context) bool {
	t := b.turn
	if len(t.steers) == 0 {
		return true
	}
	now := time.Now()
	if now.Sub(t.idle) < settleTime && !t.interrupted && !t.timedOut || now.Sub(t.checked) < b.lookEvery {
		return false
	}
	t.checked = now
	messages, err := b.server.messages(ctx, b.root)
	for i := range messages {
		b.taken(&messages[i].Info)
	}
	for _, s := range slices.Clone(t.steers) {
		stored := slices.ContainsFunc(messages, func(m opencodeformat.Exported) bool { return m.Info.ID == s.messageID })
		if stored {
			err = b.forget(ctx, s.messageID)
		}
		if stored && err == nil {
			b.drop(s)
		}
	}
	if len(t.steers) == 0 {
		return true
	}
	if busy, busyErr := b.server.busy(ctx, b.root); busyErr == nil && busy {
		t.idle = time.Time{} // it has resumed work
	} else if since := time.Since(t.idle); since >= b.silence {
		b.failHung(fmt.Errorf("a prompt for the running turn is neither taken nor deleted after %s: %w", since, cmp.Or(err, busyErr, errNotStored)))
	}
	return false
}

var errNotStored = errors.New("it is not stored")

// forget deletes a message of the session. The agent refuses that while it is busy.
func (b *driver) forget(ctx context.Context, messageID string) error {
	_, err := b.server.quick(ctx, http.MethodDelete, route(b.root, "/message/"+url.PathEscape(messageID)), nil)
	return err
}

// cleanUp deletes prompts of earlier turns that the agent did not accept before it was killed, and
// returns the other messages. Those prompts have returned to the queue.
func (b *driver) cleanUp(ctx context.Context, messages []opencodeformat.Exported) []opencodeformat.Exported {
	var left []opencodeformat.Exported
	for i, m := range messages {
		takes := func(later opencodeformat.Exported) bool { return later.Info.Takes(m.Info.ID) }
		if !opencodeformat.IsSteered(m.Info.ID) || slices.ContainsFunc(messages[i+1:], takes) {
			left = append(left, m)
			continue
		}
		if err := b.forget(ctx, m.Info.ID); err != nil {
			fmt.Fprintf(b.stderr, "opencode bridge: a prompt that was not taken: %v\n", err)
		}
		b.store.touch(b.root)
	}
	return left
}
