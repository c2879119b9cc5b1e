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
	// settleTime is how long the agent may take to store its work once it is idle.
	settleTime = 3 * time.Second
	// idleChecks is how often the agent must be found idle, without having reported it, to count as
	// idle, if it has begun the prompt or has reported a failure. startLooks is the same if it has
	// not.
	idleChecks = 3
	startLooks = 60
	lookEvery  = time.Second
	// lookTimeout bounds one request that asks whether the agent is busy. silenceTimeout is how
	// long such requests may fail before the agent counts as hung.
	lookTimeout    = 10 * time.Second
	silenceTimeout = 2 * time.Minute
)

// running is the turn in progress.
type running struct {
	runID string
	// busy: the agent has begun the turn. errored: the turn has failed. idle: the time since which
	// the agent has been idle; it may still be storing its work.
	busy    bool
	errored bool
	idle    time.Time
	// last is the newest id in the session when the turn began, answer the id of the newest answer
	// since.
	last, answer string
	// interrupted and timedOut are set if the turn was stopped for that reason.
	interrupted bool
	timedOut    bool
	// retrying is the time since which requests to the model have been failing.
	retrying time.Time
	// looked is the time at which the agent was last asked whether it is busy, found is how often
	// it was not busy, and silent is the time since which it has not responded.
	looked time.Time
	found  int
	silent time.Time
	// unsure is the error that left it unknown whether the agent has accepted the prompt.
	unsure error
	// failed receives the result of a request that lasts for the whole turn.
	failed chan error
	// cancel aborts that request.
	cancel context.CancelFunc
	// given are the ids of prompts added to the turn. steers are those that the agent has not
	// accepted, in order.
	given  map[string]bool
	steers []*steer
	// checked is when the fate of the steers was last checked.
	checked time.Time
}

// begun reports whether the agent has reacted to the prompt.
func (t *running) begun() bool { return t.answer != "" || t.errored }

// next starts the next prompt if no turn is in progress.
func (b *driver) next(ctx context.Context) {
	for b.turn == nil && len(b.queue) > 0 {
		c := b.queue[0]
		b.queue = b.queue[1:]
		b.begin(ctx, c)
	}
}

// begin sends a prompt to the agent.
func (b *driver) begin(ctx context.Context, c stdio.Command) {
	note := opencodeformat.RunNote{Title: b.title}
	messages, err := b.server.messages(ctx, b.root)
	for i := range messages {
		note.Before = max(note.Before, messages[i].Info.ID)
	}
	data, encodeErr := json.Marshal(note)
	if encodeErr != nil {
		data = nil // strings can always be encoded
	}
	b.out.Note(stdio.Note{Type: stdio.NoteRun, RunID: c.RunID, ID: b.root, Data: data})
	b.turn = &running{runID: c.RunID, looked: time.Now(), last: note.Before, given: map[string]bool{}}
	if err != nil && b.server.dies() {
		return // reported by serve
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
		if end, ended := outcomeOf(m.Info.ID, messages[i+1:]); ended {
			b.out.Note(stdio.Note{Type: stdio.NoteKnown, RunID: c.RunID, ID: m.Info.ID})
			b.end(ctx, end)
			return
		}
		// The prompt was interrupted. If it is sent again with the same ids, the agent continues
		// it.
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

// outcomeOf returns how a message was answered, or false if the answer is missing or incomplete.
func outcomeOf(messageID string, later []opencodeformat.Exported) (opencodeformat.EndNote, bool) {
	var newest *opencodeformat.Message
	for i := range later {
		m := &later[i].Info
		if !m.FromUser() && (m.ParentID == messageID || opencodeformat.IsSteered(m.ParentID)) {
			newest = m
		} else if m.FromUser() && !opencodeformat.IsSteered(m.ID) {
			break // belongs to the next turn
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

// part is one part of a prompt.
type part struct {
	ID       string `json:"id,omitempty"` // of the text
	Type     string `json:"type"`
	Text     string `json:"text,omitempty"`
	Mime     string `json:"mime,omitempty"` // of a file
	Filename string `json:"filename,omitempty"`
	URL      string `json:"url,omitempty"`
	// Synthetic is set for text that no person wrote.
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

// chosen returns the model of the prompts; nil leaves the choice to the agent.
func (b *driver) chosen() *modelRef {
	provider, model, ok := strings.Cut(b.model, "/")
	if !ok {
		return nil
	}
	return &modelRef{ProviderID: provider, ModelID: model}
}

// post sends a prompt to the agent, which executes it asynchronously. The agent may have accepted a
// prompt even if it did not acknowledge it; that is determined later.
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

// special executes a prompt that is a command of the agent, and reports whether it is one. The
// request for such a prompt lasts for the whole turn.
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
	failed := make(chan error, 1) // the turn may end before it is read
	b.turn.failed, b.turn.cancel = failed, cancel
	server, target := b.server, route(b.root, path)
	go func() {
		_, err := server.call(requestContext, http.MethodPost, target, body)
		failed <- err
	}()
	return true
}

// hasCommand reports whether the agent has a command with that name.
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

// lastModel returns the model that the session used last.
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

// seen contains the fields of an event that the bridge uses.
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

// isDelta reports whether an event is a piece of text. Most events are.
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
		// May be a repeated end of the previous turn.
		if t := b.turn; t != nil && id == b.root && t.busy && t.begun() && t.idle.IsZero() {
			t.idle = time.Now()
		}
	}
	b.settle(ctx)
}

// info stores the title of the session.
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
		if b.turn.timedOut || b.turn.interrupted {
			return
		}
		if int(status.Attempt) >= b.retries || now.Sub(b.turn.retrying) >= b.timeout {
			b.abortFailing(ctx, status.Message)
		}
	}
}

// abortFailing aborts a turn whose requests to the model keep failing.
func (b *driver) abortFailing(ctx context.Context, message string) {
	b.turn.timedOut = true
	message = opencodeformat.Bounded("the model does not answer, after many attempts: "+message, opencodeformat.MaxWords)
	if b.turn.answer != "" {
		if err := b.store.fail(opencodeformat.Failure{MessageID: b.turn.answer, Message: message}); err != nil {
			fmt.Fprintf(b.stderr, "opencode bridge: %v\n", err)
		}
	}
	b.out.Note(stdio.Note{Type: stdio.NoteDeadline, RunID: b.turn.runID, ID: b.turn.answer, Message: message})
	b.abort(ctx)
}

// look handles timeouts and periodic checks.
func (b *driver) look(ctx context.Context) {
	now := time.Now()
	if b.turn != nil && b.turn.idle.IsZero() && now.Sub(b.turn.looked) >= b.lookEvery {
		b.turn.looked = now
		b.checkBusy(ctx)
	}
	if t := b.turn; t != nil && !t.retrying.IsZero() && !t.timedOut && !t.interrupted && now.Sub(t.retrying) >= b.timeout {
		b.abortFailing(ctx, "its server fails")
	}
	b.settle(ctx)
}

// checkBusy asks the agent whether it is busy, because it may have become idle without
// reporting it.
func (b *driver) checkBusy(ctx context.Context) {
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
			b.failHung(err)
		}
		return
	case busy:
		t.found, t.unsure = 0, nil
	default:
		t.found++
		switch {
		case t.found < startLooks && (t.found < idleChecks || !t.busy && !t.errored):
		case t.unsure != nil && !t.begun():
			b.failHung(t.unsure)
		default:
			t.idle = time.Now()
		}
	}
	t.silent = time.Time{}
}

// failHung kills an agent that does not finish its work, so that no effect follows its reported end.
func (b *driver) failHung(err error) {
	b.why = fmt.Sprintf("OpenCode does not answer: %v", err)
	b.server.stop()
}

func (b *driver) save(ctx context.Context) {
	if err := b.store.save(ctx, b.server); err != nil {
		fmt.Fprintf(b.stderr, "opencode bridge: %v\n", err)
	}
}

// settle ends the turn once the agent is idle and has stored everything.
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
			if err != nil && !t.interrupted && !t.timedOut {
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

// fail ends the turn with an error.
func (b *driver) fail(ctx context.Context, err error) {
	b.out.Note(stdio.Note{Type: stdio.NoteFailed, RunID: b.turn.runID, Message: err.Error()})
	b.end(ctx, opencodeformat.EndNote{})
}

// end prints the end of the turn, once its transcript is saved.
func (b *driver) end(ctx context.Context, how opencodeformat.EndNote) {
	b.save(ctx)
	data, err := json.Marshal(how)
	if err != nil {
		data = nil // strings can always be encoded
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
