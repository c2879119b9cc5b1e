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

// steer is a prompt that the turn was given and the agent has not taken. The agent stores it as a message at once, and takes it with its next
// answer.
type steer struct {
	command   stdio.Command
	messageID string
	sent      time.Time
	// held are the events about its message, which are printed when the agent takes it: so it is where the transcript has it, and
	// one that is declined is never shown.
	held [][]byte
}

// steer gives the agent a prompt in the running turn. A second line for the same prompt is ignored.
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
	if t.interrupted || t.givenUp || t.failed != nil { // a command of the agent, such as a compaction, takes no prompts
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
	} // else the agent may have it
}

// drop declines a prompt that the agent does not have.
func (b *driver) drop(s *steer) {
	b.turn.steers = slices.DeleteFunc(b.turn.steers, func(o *steer) bool { return o == s })
	b.decline(s.command)
}

// decline reports that the agent has not taken a prompt.
func (b *driver) decline(c stdio.Command) {
	b.out.Note(stdio.Note{Type: stdio.NoteDeclined, RunID: c.RunID, ID: c.PromptID})
}

// about is what an event says of a message.
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

// hold keeps an event that is about a prompt which the agent has not taken, and reports whether it has. If the event is an answer with which
// the agent takes prompts, it prints theirs first.
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
			if b.taken(m) && (t.interrupted || t.givenUp) {
				b.abort(ctx) // it has begun with one that came when it was being stopped
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

// taken prints the events about the prompts that an answer takes, and reports whether there are any.
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

// settleSteers has the agent, which is idle, forget the prompts that it has not taken, and reports whether none is left. The agent may be about to
// begin with one that has come when it had just finished.
func (b *driver) settleSteers(ctx context.Context) bool {
	t := b.turn
	if len(t.steers) == 0 {
		return true
	}
	now := time.Now()
	if now.Sub(t.idle) < settleTime && !t.interrupted && !t.givenUp || now.Sub(t.checked) < b.lookEvery {
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
		t.idle = time.Time{} // it has begun again
	} else if since := time.Since(t.idle); since >= b.silence {
		b.hung(fmt.Errorf("a prompt for the running turn is neither taken nor deleted after %s: %w", since, cmp.Or(err, busyErr, errNotStored)))
	}
	return false
}

var errNotStored = errors.New("it is not stored")

// forget deletes a message of the session. The agent refuses that while it works.
func (b *driver) forget(ctx context.Context, messageID string) error {
	_, err := b.server.quick(ctx, http.MethodDelete, route(b.root, "/message/"+url.PathEscape(messageID)), nil)
	return err
}

// cleanUp deletes the prompts that earlier turns were given and the agent has not taken, because it was killed, and returns the other
// messages. Those prompts have returned to the queue.
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
