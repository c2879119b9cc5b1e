package codexbridge

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/codex/codexformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// handleLine prints a line of the agent. Before that, it records in the notebook the information
// that the agent's own files will lack.
func (p *program) handleLine(line []byte, m bridge.Message) {
	if m.Method == "" {
		p.out.Raw(line)
		return
	}
	var n codexformat.Params
	codexformat.Lenient(m.Params, &n)
	if m.IsRequest() {
		p.request(line, codexformat.Frame{ID: m.ID, Method: m.Method, Params: n})
		return
	}
	switch m.Method {
	case "thread/started":
		p.threadStarted(m.Params)
	case "turn/started":
		p.turnStarted(n)
	case "item/started":
		p.itemStarted(line, n)
	case "item/completed":
		p.itemCompleted(line, n)
	case "item/agentMessage/delta", "item/plan/delta", "item/reasoning/textDelta", "item/reasoning/summaryTextDelta":
		p.wrote(n)
	case "error":
		if n.Retry {
			p.keep(line)
			p.fails(refusal(n.Error))
		}
	case "turn/completed":
		p.turnCompleted(line, n)
	}
	p.out.Raw(line)
}

// request records a question, or rejects a request that the bridge cannot serve.
func (p *program) request(line []byte, f codexformat.Frame) {
	r := f.Params
	q, ok := codexformat.Question(f)
	if !ok {
		p.out.Raw(line)
		_ = p.peer.Refuse(f.ID, bridge.CodeMethodNotFound, "overwinter does not do that") // the agent may have exited
		return
	}
	p.mu.Lock()
	p.asked[q.ID] = pending{id: f.ID, method: f.Method, turn: codexformat.Turn{Thread: r.Thread, ID: r.Turn}, item: r.ItemID}
	p.mu.Unlock()
	if f.Method == codexformat.AskUser {
		n := stdio.Note{Type: codexformat.NoteAsked, ID: r.ItemID, Data: data(codexformat.AskData{Thread: r.Thread, Turn: r.Turn, At: now(), Input: q.Input})}
		p.note(n)
		p.out.Note(n)
	}
	p.out.Raw(line)
}

func (p *program) threadStarted(raw json.RawMessage) {
	var s struct {
		Thread struct {
			ID   string `json:"id"`
			Path string `json:"path"`
		} `json:"thread"`
	}
	if !codexformat.Lenient(raw, &s) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rollouts[s.Thread.ID] = s.Thread.Path
}

func (p *program) turnStarted(n codexformat.Params) {
	var info struct {
		ID string `json:"id"`
	}
	if !codexformat.Lenient(n.Info, &info) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turns = append(p.turns, codexformat.Turn{Thread: n.Thread, ID: info.ID})
}

// itemStarted records the position of an item. It records complete calls, because a call that ends
// with its process is in no file of the agent.
func (p *program) itemStarted(line []byte, n codexformat.Params) {
	p.succeeds()
	it, ok := codexformat.DecodeItem(n.Item)
	if !ok {
		return
	}
	if it.Name != "" {
		p.keep(line)
		return
	}
	p.note(stdio.Note{Type: codexformat.NoteBegan, ID: it.ID, Data: data(codexformat.ItemData{Thread: n.Thread, Turn: n.Turn, Kind: it.Kind, At: it.Started})})
	if it.Kind == codexformat.KindText || it.Kind == codexformat.KindPlan || it.Kind == codexformat.KindThinking {
		p.mu.Lock()
		p.writing = append(p.writing, &written{Turn: codexformat.Turn{Thread: n.Thread, ID: n.Turn}, item: it.ID})
		p.mu.Unlock()
	}
}

func (p *program) itemCompleted(line []byte, n codexformat.Params) {
	it, ok := codexformat.DecodeItem(n.Item)
	if !ok {
		return
	}
	p.mu.Lock()
	p.writing = slices.DeleteFunc(p.writing, func(w *written) bool { return w.item == it.ID })
	if it.Kind == codexformat.KindUser && p.steered[it.Client] {
		p.steered[it.Client] = false
	}
	if d := p.delivered[p.run]; d != nil && it.Kind == codexformat.KindUser && n.Thread == p.thread {
		d.received = true
	}
	p.mu.Unlock()
	if it.Status == codexformat.Declined {
		p.keep(line) // the agent's own file has it in another form, or not at all
		return
	}
	p.note(stdio.Note{Type: codexformat.NoteEnded, ID: it.ID, Data: data(codexformat.ItemData{Thread: n.Thread, Turn: n.Turn, At: it.Completed})})
}

// wrote keeps text in progress, because it may never be completed.
func (p *program) wrote(n codexformat.Params) {
	p.succeeds()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.writing {
		if w.item != n.ItemID {
			continue
		}
		if n.Part != w.part && w.text.Len() > 0 {
			w.text.WriteString(codexformat.Paragraph)
		}
		w.part = n.Part
		w.text.WriteString(n.Delta)
	}
}

// refusal returns why retries will not succeed: the model API does not accept the key. Its message
// is empty for other failures.
func refusal(raw json.RawMessage) (message string, failure codexformat.Failure) {
	var e struct {
		Details string `json:"additionalDetails"`
	}
	if failure = codexformat.FailureOf(raw); !codexformat.Lenient(raw, &e) || !stdio.RefusesKey(failure.Status, e.Details) {
		return "", codexformat.Failure{}
	}
	return codexformat.Bounded("The model API refused the key: " + e.Details), failure
}

// fails starts the timeout for the model API, which ends the turn unless a request succeeds. A
// permanent failure ends it at once.
func (p *program) fails(permanent string, failure codexformat.Failure) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writing = nil // the agent will write the text again
	switch {
	case p.permanent != "": // the turn is already being aborted
	case permanent != "":
		p.permanent, p.refused = permanent, failure
		p.reachLimit()
	case p.failing == nil:
		p.failing = time.AfterFunc(p.timeout, p.reachLimit)
	}
}

func (p *program) reachLimit() {
	select {
	case p.limit <- struct{}{}:
	default: // known failure
	}
}

// succeeds stops the timeout that fails has started.
func (p *program) succeeds() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopTimer()
}

func (p *program) stopTimer() {
	p.permanent, p.refused = "", codexformat.Failure{}
	if p.failing != nil {
		p.failing.Stop()
		p.failing = nil
	}
}

// turnCompleted completes the transcript before it reports the end of the turn.
func (p *program) turnCompleted(line []byte, n codexformat.Params) {
	var info struct {
		ID     string          `json:"id"`
		Status string          `json:"status"`
		Error  json.RawMessage `json:"error"`
	}
	if !codexformat.Lenient(n.Info, &info) {
		return
	}
	turn := codexformat.Turn{Thread: n.Thread, ID: info.ID}
	p.mu.Lock()
	p.stopTimer()
	p.turns = slices.DeleteFunc(p.turns, func(t codexformat.Turn) bool { return t == turn })
	file := p.rollouts[n.Thread]
	var left []*written
	p.writing = slices.DeleteFunc(p.writing, func(w *written) bool {
		if w.Turn == turn {
			left = append(left, w)
		}
		return w.Turn == turn
	})
	for id, q := range p.asked {
		if q.turn == turn {
			delete(p.asked, id)
		}
	}
	for _, d := range p.delivered {
		if d.live && d.verdict == nil && n.Thread == p.thread {
			d.turn, d.verdict = info.ID, verdictOf(codexformat.Verdict{Status: info.Status, Message: codexformat.Problem(info.Error), Failure: codexformat.FailureOf(info.Error)})
		}
	}
	p.mu.Unlock()
	if info.Status == codexformat.Interrupted {
		for _, w := range left {
			if w.text.Len() > 0 {
				p.note(stdio.Note{Type: codexformat.NoteWords, ID: w.item, Data: data(codexformat.ItemData{Thread: n.Thread, Turn: info.ID, At: now(), Text: w.text.String()})})
			}
		}
	}
	if info.Status != codexformat.Completed {
		p.keep(line)
	}
	awaitEnd(file, info.ID)
	if n.Thread == p.mainThread() {
		for _, id := range p.left() {
			p.decline(id)
		}
	}
}

func (p *program) mainThread() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.thread
}

// verdictOf returns the report for a repeated delivery of the prompt of a turn with this end.
func verdictOf(v codexformat.Verdict) *codexformat.KnownData {
	switch v.Status {
	case codexformat.Completed:
		return &codexformat.KnownData{Outcome: session.OutcomeCompleted}
	case codexformat.Interrupted:
		return &codexformat.KnownData{Outcome: session.OutcomeCancelled, Reason: session.ReasonAborted}
	}
	return &codexformat.KnownData{Outcome: session.OutcomeFailed, Reason: v.Message, Failure: v.Failure}
}

const (
	// flushTimeout bounds the wait for the agent to store the end of a turn.
	flushTimeout = 2 * time.Second
	flushPoll    = 5 * time.Millisecond
	// tail is the length of the end of a rollout that is searched for the end of a turn, because
	// the agent writes little after that.
	tail = 64 << 10
)

// awaitEnd waits until a rollout contains the end of a turn. The agent appears to store the end
// before it reports it. If the end does not appear in time, the rollout is used without it.
func awaitEnd(file, id string) {
	if file == "" {
		return
	}
	deadline := time.NewTimer(flushTimeout)
	defer deadline.Stop()
	poll := time.NewTicker(flushPoll)
	defer poll.Stop()
	for !hasEnd(file, id) {
		select {
		case <-deadline.C:
			return
		case <-poll.C:
		}
	}
}

func hasEnd(name, id string) bool {
	file, err := os.Open(name)
	if err != nil {
		return false
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > tail {
		if _, err := file.Seek(-tail, io.SeekEnd); err != nil {
			return false
		}
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return false
	}
	for line := range bytes.Lines(text) {
		ends := bytes.Contains(line, []byte(`"task_complete"`)) || bytes.Contains(line, []byte(`"turn_aborted"`))
		if ends && bytes.Contains(line, []byte(id)) && bytes.HasSuffix(line, []byte("\n")) {
			return true
		}
	}
	return false
}
