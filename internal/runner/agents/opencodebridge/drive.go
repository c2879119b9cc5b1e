package opencodebridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/opencode/opencodeformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const (
	// settleTime is how long the agent may take, once it is idle, to write down what it has done.
	settleTime = 3 * time.Second
	// idleLooks is how often the agent must be found idle, without having said so, to count as idle:
	// when it has begun with a prompt, or has said that it failed, and when it has not.
	idleLooks  = 3
	startLooks = 60
	lookEvery  = time.Second
	// lookTimeout is how long the agent may take to say whether it works, and silenceTimeout how long
	// it may leave such questions open before it is taken for hung.
	lookTimeout    = 10 * time.Second
	silenceTimeout = 2 * time.Minute
)

// running is the turn under way.
type running struct {
	runID string
	// busy: the agent has begun with it. errored: it has failed. idle: since when it has nothing more to
	// do; it may still be writing down what it did.
	busy    bool
	errored bool
	idle    time.Time
	// last is the newest id in the session when the turn began, answer that of the newest answer since.
	last, answer string
	// interrupted and given up: why it was stopped.
	interrupted bool
	givenUp     bool
	// retrying is since when attempts at the model fail.
	retrying time.Time
	// looked is when the agent was asked last whether it works, found how often it did not, silent since
	// when it does not answer.
	looked time.Time
	found  int
	silent time.Time
	// unsure is why it is not known whether the agent has taken the prompt.
	unsure error
	// failed gets what became of a request that lasts as long as the turn.
	failed chan error
	// cancel breaks that request off.
	cancel context.CancelFunc
	// given are the prompts that the turn was given, by their ids, and steers those that the agent has not taken, in order.
	given  map[string]bool
	steers []*steer
	// checked is when it was compared last what the agent has done with them.
	checked time.Time
}

// begun reports whether something has come of the prompt.
func (t *running) begun() bool { return t.answer != "" || t.errored }

// next begins with the next prompt when nothing is under way.
func (b *driver) next(ctx context.Context) {
	for b.turn == nil && len(b.queue) > 0 {
		c := b.queue[0]
		b.queue = b.queue[1:]
		b.begin(ctx, c)
	}
}

// begin gives the agent a prompt.
func (b *driver) begin(ctx context.Context, c stdio.Command) {
	note := opencodeformat.RunNote{Title: b.title}
	messages, err := b.server.messages(ctx, b.root)
	for i := range messages {
		note.Before = max(note.Before, messages[i].Info.ID)
	}
	data, encodeErr := json.Marshal(note)
	if encodeErr != nil {
		data = nil // strings always encode
	}
	b.out.Note(stdio.Note{Type: stdio.NoteRun, RunID: c.RunID, ID: b.root, Data: data})
	b.turn = &running{runID: c.RunID, looked: time.Now(), last: note.Before, given: map[string]bool{}}
	if err != nil && b.server.dies() {
		return // serve reports it
	}
	if err != nil {
		b.fail(ctx, err)
		return
	}
	messages = b.cleanUp(ctx, messages)
	for i := range messages {
		m := &messages[i]
		if !m.Info.FromUser() || !opencodeformat.IsMessageOf(m.Info.ID, c.RunID) {
			continue
		}
		if end, over := outcomeOf(m.Info.ID, messages[i+1:]); over {
			b.out.Note(stdio.Note{Type: stdio.NoteKnown, RunID: c.RunID, ID: m.Info.ID})
			b.end(ctx, end)
			return
		}
		// It was interrupted. If it is sent once more with the same ids, the agent continues it.
		partID := newID("prt", c.RunID, time.Now(), "")
		if len(m.Parts) > 0 {
			partID = m.Parts[0].ID
		}
		b.post(ctx, c, m.Info.ID, partID)
		return
	}
	now := time.Now()
	messageID := newID("msg", c.RunID, now, b.turn.last)
	if !b.special(ctx, c, messageID) {
		b.post(ctx, c, messageID, newID("prt", c.RunID, now, ""))
	}
}

// outcomeOf is how a message was answered; false as long as it has not been, to the end.
func outcomeOf(messageID string, later []opencodeformat.Exported) (opencodeformat.EndNote, bool) {
	var newest *opencodeformat.Message
	for i := range later {
		m := &later[i].Info
		if !m.FromUser() && (m.ParentID == messageID || opencodeformat.IsSteered(m.ParentID)) {
			newest = m
		} else if m.FromUser() && !opencodeformat.IsSteered(m.ID) {
			break // of the next turn
		}
	}
	switch {
	case newest == nil:
		return opencodeformat.EndNote{}, false
	case newest.Error != nil && newest.Error.Name == opencodeformat.Aborted:
		return opencodeformat.EndNote{Outcome: session.OutcomeCancelled, Reason: session.ReasonAborted}, true
	case newest.Error != nil:
		return opencodeformat.FailedBy(newest.Error), true
	case newest.Time.Completed != 0 && newest.Finish == "":
		return opencodeformat.EndNote{Outcome: session.OutcomeCancelled, Reason: session.ReasonAborted}, true
	case newest.Finish != "" && newest.Finish != "tool-calls" && newest.Finish != "unknown":
		return opencodeformat.EndNote{Outcome: session.OutcomeCompleted}, true
	}
	return opencodeformat.EndNote{}, false
}

// part is a part of a prompt.
type part struct {
	ID       string `json:"id,omitempty"` // of the text
	Type     string `json:"type"`
	Text     string `json:"text,omitempty"`
	Mime     string `json:"mime,omitempty"` // of a file
	Filename string `json:"filename,omitempty"`
	URL      string `json:"url,omitempty"`
	// Synthetic: no person wrote the text.
	Synthetic bool `json:"synthetic,omitempty"`
}

type modelRef struct {
	ProviderID string `json:"providerID"`
	ModelID    string `json:"modelID"`
}

type promptBody struct {
	MessageID string    `json:"messageID"`
	Model     *modelRef `json:"model,omitempty"`
	Parts     []part    `json:"parts"`
}

// chosen is the model of the prompts; nil leaves it to the agent.
func (b *driver) chosen() *modelRef {
	provider, model, ok := strings.Cut(b.model, "/")
	if !ok {
		return nil
	}
	return &modelRef{ProviderID: provider, ModelID: model}
}

// post sends the agent a prompt, which it executes asynchronously. An unacknowledged prompt may
// have been accepted nevertheless: that shows later.
func (b *driver) post(ctx context.Context, c stdio.Command, messageID, partID string) {
	parts := []part{{ID: partID, Type: opencodeformat.PartText, Text: c.Content}}
	if c.Reminder != "" {
		parts = append(parts, part{Type: opencodeformat.PartText, Text: c.Reminder, Synthetic: true})
	}
	for _, i := range bridge.ReadImages(c.Images) {
		parts = append(parts, part{Type: "file", Mime: i.MediaType, Filename: path.Base(i.Path), URL: i.URL()})
	}
	_, err := b.server.quick(ctx, http.MethodPost, route(b.root, "/prompt_async"), promptBody{
		MessageID: messageID, Model: b.chosen(), Parts: parts,
	})
	var refused *statusError
	switch {
	case errors.As(err, &refused):
		b.fail(ctx, err)
	case err != nil:
		fmt.Fprintf(b.stderr, "opencode bridge: %v\n", err)
		b.turn.unsure = err
	}
}

// special does what a prompt says that is a command of the agent, and reports whether it is one.
// Such a request lasts as long as the turn.
func (b *driver) special(ctx context.Context, c stdio.Command, messageID string) bool {
	word, arguments, _ := strings.Cut(strings.TrimSpace(c.Content), " ")
	name, ok := strings.CutPrefix(word, "/")
	if !ok || name == "" {
		return false
	}
	var path string
	var body any
	switch {
	case name == "compact" || name == "summarize":
		model := b.chosen()
		if model == nil {
			model = b.lastModel(ctx)
		}
		if model == nil {
			return false
		}
		path, body = "/summarize", model
	case b.hasCommand(ctx, name):
		path, body = "/command", map[string]string{
			"messageID": messageID, "command": name, "arguments": strings.TrimSpace(arguments),
		}
		if b.model != "" {
			body.(map[string]string)["model"] = b.model
		}
	default:
		return false
	}
	requestContext, cancel := context.WithCancel(ctx)
	failed := make(chan error, 1) // the turn may be over before it is read
	b.turn.failed, b.turn.cancel = failed, cancel
	server, target := b.server, route(b.root, path)
	go func() {
		_, err := server.call(requestContext, http.MethodPost, target, body)
		failed <- err
	}()
	return true
}

// hasCommand reports whether the agent knows a command of that name.
func (b *driver) hasCommand(ctx context.Context, name string) bool {
	data, err := b.server.quick(ctx, http.MethodGet, "/command", nil)
	if err != nil {
		return false
	}
	var all []struct {
		Name string `json:"name"`
	}
	if json.Unmarshal(data, &all) != nil {
		return false
	}
	for _, known := range all {
		if known.Name == name {
			return true
		}
	}
	return false
}

// lastModel is the model that the session has had last.
func (b *driver) lastModel(ctx context.Context) *modelRef {
	messages, err := b.server.messages(ctx, b.root)
	if err != nil {
		return nil
	}
	for _, m := range slices.Backward(messages) {
		if m.Info.ProviderID != "" && m.Info.ModelID != "" {
			return &modelRef{ProviderID: m.Info.ProviderID, ModelID: m.Info.ModelID}
		}
	}
	return nil
}

// interrupt aborts a turn, or withdraws a waiting prompt.
func (b *driver) interrupt(ctx context.Context, runID string) {
	b.queue = slices.DeleteFunc(b.queue, func(c stdio.Command) bool { return c.RunID == runID })
	if b.turn == nil || b.turn.runID != runID {
		return
	}
	b.turn.interrupted = true
	b.abort(ctx)
}

func (b *driver) abort(ctx context.Context) {
	if _, err := b.server.quick(ctx, http.MethodPost, route(b.root, "/abort"), nil); err != nil {
		fmt.Fprintf(b.stderr, "opencode bridge: abort: %v\n", err)
	}
}

// seen is what the bridge wants to know of an event.
type seen struct {
	Type       string `json:"type"`
	Properties struct {
		SessionID string                 `json:"sessionID"`
		Info      opencodeformat.Message `json:"info"`
		Status    struct {
			Type    string  `json:"type"`
			Attempt float64 `json:"attempt"`
			Message string  `json:"message"`
		} `json:"status"`
	} `json:"properties"`
}

// isDelta reports whether an event is a piece of text, of which there are most.
func isDelta(data []byte) bool {
	return bytes.Contains(data[:min(len(data), 128)], []byte(`"type":"message.part.delta"`))
}

// event handles an event of the agent.
func (b *driver) event(ctx context.Context, data []byte) {
	var e seen
	if isDelta(data) || json.Unmarshal(data, &e) != nil {
		return
	}
	id := e.Properties.SessionID
	switch e.Type {
	case "session.created", "session.updated":
		b.info(data)
		b.store.touch(id)
	case "message.updated":
		b.store.touch(id)
		if m := e.Properties.Info; m.Role == "assistant" {
			if b.turn != nil && id == b.root && m.ID > b.turn.last {
				b.turn.answer = m.ID
			}
			if m.Time.Completed == 0 {
				b.incomplete[m.ID] = true
			} else {
				delete(b.incomplete, m.ID)
			}
		}
	case "message.part.updated", "message.part.removed", "message.removed":
		b.store.touch(id)
		if b.turn != nil {
			b.turn.retrying = time.Time{}
		}
	case "session.status":
		b.status(ctx, e)
	case "session.error":
		if b.turn != nil && id == b.root {
			b.turn.errored, b.turn.found = true, 0
		}
	case "session.idle":
		// It may be the end of the turn before, said once more.
		if t := b.turn; t != nil && id == b.root && t.busy && t.begun() && t.idle.IsZero() {
			t.idle = time.Now()
		}
	}
	b.settle(ctx)
}

// info keeps the title of the session.
func (b *driver) info(data []byte) {
	var e struct {
		Properties opencodeformat.SessionEvent `json:"properties"`
	}
	if json.Unmarshal(data, &e) == nil && e.Properties.Info.ID == b.root {
		b.title = e.Properties.Info.Title
	}
}

func (b *driver) status(ctx context.Context, e seen) {
	if b.turn == nil {
		return
	}
	switch status := e.Properties.Status; status.Type {
	case "busy":
		if e.Properties.SessionID == b.root {
			b.turn.busy, b.turn.idle, b.turn.found, b.turn.unsure = true, time.Time{}, 0, nil
		}
	case "retry":
		now := time.Now()
		if b.turn.retrying.IsZero() {
			b.turn.retrying = now
		}
		if b.turn.givenUp || b.turn.interrupted {
			return
		}
		if int(status.Attempt) >= b.retries || now.Sub(b.turn.retrying) >= b.timeout {
			b.giveUp(ctx, status.Message)
		}
	}
}

// giveUp ends a turn whose attempts at the model fail again and again.
func (b *driver) giveUp(ctx context.Context, message string) {
	b.turn.givenUp = true
	message = opencodeformat.Bounded("the model does not answer, after many attempts: "+message, opencodeformat.MaxWords)
	if b.turn.answer != "" {
		if err := b.store.fail(opencodeformat.Failure{MessageID: b.turn.answer, Message: message}); err != nil {
			fmt.Fprintf(b.stderr, "opencode bridge: %v\n", err)
		}
	}
	b.out.Note(stdio.Note{Type: stdio.NoteDeadline, RunID: b.turn.runID, ID: b.turn.answer, Message: message})
	b.abort(ctx)
}

// look does what is due by the clock.
func (b *driver) look(ctx context.Context) {
	now := time.Now()
	if b.turn != nil && b.turn.idle.IsZero() && now.Sub(b.turn.looked) >= b.lookEvery {
		b.turn.looked = now
		b.lookWhetherBusy(ctx)
	}
	if t := b.turn; t != nil && !t.retrying.IsZero() && !t.givenUp && !t.interrupted && now.Sub(t.retrying) >= b.timeout {
		b.giveUp(ctx, "its server fails")
	}
	b.settle(ctx)
}

// lookWhetherBusy asks the agent whether it works, as it may have ended without having said so.
func (b *driver) lookWhetherBusy(ctx context.Context) {
	t := b.turn
	asked := time.Now()
	busy, err := b.server.busy(ctx, b.root)
	switch {
	case err != nil:
		t.found = 0
		if t.silent.IsZero() {
			t.silent = asked
		}
		if time.Since(t.silent) >= b.silence {
			b.hung(err)
		}
		return
	case busy:
		t.found, t.unsure = 0, nil
	default:
		t.found++
		switch {
		case t.found < startLooks && (t.found < idleLooks || !t.busy && !t.errored):
		case t.unsure != nil && !t.begun():
			b.hung(t.unsure)
		default:
			t.idle = time.Now()
		}
	}
	t.silent = time.Time{}
}

// hung ends an agent that does not finish its work, so that no effect follows its reported end.
func (b *driver) hung(err error) {
	b.why = fmt.Sprintf("OpenCode does not answer: %v", err)
	b.server.stop()
}

func (b *driver) save(ctx context.Context) {
	if err := b.store.save(ctx, b.server); err != nil {
		fmt.Fprintf(b.stderr, "opencode bridge: %v\n", err)
	}
}

// settle ends the turn once the agent is idle and has written everything down.
func (b *driver) settle(ctx context.Context) {
	t := b.turn
	if t == nil || t.idle.IsZero() {
		return
	}
	if len(b.incomplete) > 0 && time.Since(t.idle) < settleTime || !b.settleSteers(ctx) {
		return
	}
	if t.failed != nil {
		select {
		case err := <-t.failed:
			if err != nil && !t.interrupted && !t.givenUp {
				b.fail(ctx, err)
				return
			}
		default:
			if time.Since(t.idle) < settleTime {
				return
			}
		}
	}
	var end opencodeformat.EndNote
	switch {
	case t.interrupted:
		end = opencodeformat.EndNote{Outcome: session.OutcomeCancelled, Reason: session.ReasonAborted}
	case !t.begun():
		end = opencodeformat.EndNote{Outcome: session.OutcomeFailed, Reason: "the agent stopped without an answer"}
	}
	b.end(ctx, end)
}

// fail ends a turn that has failed.
func (b *driver) fail(ctx context.Context, err error) {
	b.out.Note(stdio.Note{Type: stdio.NoteFailed, RunID: b.turn.runID, Message: err.Error()})
	b.end(ctx, opencodeformat.EndNote{})
}

// end lets the end of the turn out, once its transcript is saved.
func (b *driver) end(ctx context.Context, how opencodeformat.EndNote) {
	b.save(ctx)
	data, err := json.Marshal(how)
	if err != nil {
		data = nil // strings always encode
	}
	runID := b.turn.runID
	for _, s := range b.turn.steers {
		b.decline(s.command)
	}
	if b.turn.cancel != nil {
		b.turn.cancel()
	}
	b.turn = nil
	clear(b.incomplete)
	b.out.Note(stdio.Note{Type: opencodeformat.NoteEnd, RunID: runID, Data: data})
	b.next(ctx)
}
