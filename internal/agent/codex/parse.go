package codex

import (
	"bytes"
	"cmp"
	"encoding/json"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/codex/codexformat"
	"github.com/overwinter-dev/overwinter/internal/agent/codex/oldrollout"
	"github.com/overwinter-dev/overwinter/internal/agent/jsonscan"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// Parse reads the rollouts of a session, one per thread, and the notebook, which contains the
// information that they lack. Without a notebook, as with files of another client, it derives the
// order from times.
func (Adapter) Parse(files []transcript.File) (conversation.Conversation, error) {
	p := parser{threads: map[string]*thread{}, reviews: map[string]bool{}, ended: map[string]bool{}}
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b transcript.File) int { return strings.Compare(path.Base(a.Path), path.Base(b.Path)) })
	heads := map[string]codexformat.Payload{}
	for _, f := range files {
		if !isNotebook(f.Path) {
			head := codexformat.Owner(f.Data)
			heads[head.ID] = head
		}
	}
	for id, head := range heads {
		_, known := heads[head.Parent]
		p.reviews[id] = known && head.Reviews()
	}
	for _, f := range files {
		switch {
		case isNotebook(f.Path), p.reviews[codexformat.Owner(f.Data).ID]:
		case oldrollout.Is(f.Data):
			p.old(oldrollout.Read(f.Data))
		default:
			p.rollout(f.Data)
		}
	}
	for _, f := range files {
		if isNotebook(f.Path) {
			p.notebook(f.Data)
		}
	}
	return p.conversation(), nil
}

// parser collects the threads of a session.
type parser struct {
	threads map[string]*thread
	order   []*thread // in order of appearance
	root    string
	// reviews are the threads of reviews, whose work is in the rollout of the thread that requested
	// them.
	reviews map[string]bool
	ended   map[string]bool // ended items of the main conversation
}

// thread is the content of a thread.
type thread struct {
	id    string
	main  bool // not a subagent
	cwd   string
	items map[string]codexformat.Item
	// noted are the steps from the notebook, found those from the rollout.
	noted, found []*step
	began        map[string]bool // items in noted
	ended        map[string]bool
	turns        map[string]bool // turns whose end is in noted
	calls        map[string]*call
	last         codexformat.Verdict // of the first turn that ended
	hasLast      bool
	first        int64 // time of its first event
}

// step is one step of a thread.
type step struct {
	ms    int64
	turn  string
	what  stepKind
	item  codexformat.Item
	end   codexformat.Verdict
	words string // message of a retry
	note  stdio.Note
}

type stepKind int

const (
	stepBegin stepKind = iota
	stepEnd
	stepText
	stepRetry
	stepQuestion
	stepDeadline
	stepTurn
	stepTimedOut
)

func (p *parser) thread(id string) *thread {
	t, ok := p.threads[id]
	if !ok {
		t = &thread{
			id: id, items: map[string]codexformat.Item{}, began: map[string]bool{}, ended: map[string]bool{}, turns: map[string]bool{},
			calls: map[string]*call{},
		}
		p.threads[id] = t
		p.order = append(p.order, t)
	}
	return t
}

// rollout reads the file of a thread.
func (p *parser) rollout(data []byte) {
	var t *thread
	turn := ""
	for line := range bytes.Lines(data) {
		l, ok := codexformat.DecodeRecord(line)
		if !ok {
			continue
		}
		if l.Type == "session_meta" {
			// A fork begins with the lines of the thread from which it was forked.
			if t == nil && l.Payload.ID != "" {
				t = p.thread(l.Payload.ID)
				t.main, t.cwd = l.Payload.Parent == "", l.Payload.Cwd
			}
			continue
		}
		if t == nil {
			continue
		}
		switch ms := l.Time().UnixMilli(); l.Type {
		case "event_msg":
			turn = p.event(t, l.Payload, turn, ms)
		case "response_item":
			t.response(l.Payload, turn, ms)
		}
	}
	t.uncompleted()
}

// old adds the thread of a rollout of an older version.
func (p *parser) old(r oldrollout.Rollout) {
	if r.Thread == "" {
		return
	}
	t := p.thread(r.Thread)
	t.main, t.cwd = r.Parent == "", r.Dir
	for _, s := range r.Steps {
		switch s.Kind {
		case oldrollout.Aborted:
			t.endTurn("", s.End, s.At)
		case oldrollout.Whole:
			t.add(s.Item, "")
		case oldrollout.Begun:
			t.found = append(t.found, &step{ms: s.At, what: stepBegin, item: s.Item})
		case oldrollout.Ended:
			t.found = append(t.found, &step{ms: s.At, what: stepEnd, item: s.Item})
		}
	}
}

// event reads an event line and returns the turn in progress.
func (p *parser) event(t *thread, e codexformat.Payload, turn string, ms int64) string {
	switch e.Type {
	case "task_started", "turn_started":
		t.found = append(t.found, &step{ms: ms, turn: e.Turn, what: stepTurn})
		return e.Turn
	case "task_complete", "turn_complete", "turn_aborted":
		t.endTurn(e.Turn, e.Verdict(), ms)
	case "item_completed":
		it, ok := codexformat.DecodeItem(e.Item)
		if !ok || (e.Thread != "" && e.Thread != t.id && !p.reviews[e.Thread]) {
			return turn
		}
		it.Started, it.Completed = e.Started, e.Completed
		t.add(it, e.Turn)
	}
	return turn
}

func (t *thread) endTurn(turn string, v codexformat.Verdict, ms int64) {
	if !t.hasLast {
		t.last, t.hasLast = v, true
	}
	t.found = append(t.found, &step{ms: ms, turn: turn, what: stepTimedOut, end: v})
}

// add adds an item that has ended.
func (t *thread) add(it codexformat.Item, turn string) {
	if _, ok := t.items[it.ID]; ok {
		return
	}
	t.items[it.ID] = it
	t.found = append(t.found,
		&step{ms: it.Started, turn: turn, what: stepBegin, item: it},
		&step{ms: it.Completed, turn: turn, what: stepEnd, item: it})
}

// call is a tool call as the model wrote it.
type call struct {
	item   codexformat.Item
	turn   string
	ms     int64
	output string
	ended  int64
	place  int // index in found
}

// response reads the messages between model and agent. It uses only calls that never became an
// item.
func (t *thread) response(r codexformat.Payload, turn string, ms int64) {
	if r.Call == "" {
		return
	}
	switch r.Type {
	case "function_call", "custom_tool_call":
		it, ok := t.called(r.Name, []byte(r.Arguments), r.Input)
		if !ok {
			return
		}
		it.ID, it.Started = r.Call, ms
		t.calls[r.Call] = &call{item: it, turn: turn, ms: ms, place: len(t.found)}
	case "function_call_output", "custom_tool_call_output":
		if c := t.calls[r.Call]; c != nil {
			c.output, c.ended = codexformat.First(jsonscan.Text(r.Output), codexformat.Texts(r.Output)), ms
		}
	}
}

// called returns the item for a call that never became one.
func (t *thread) called(name string, arguments []byte, input string) (codexformat.Item, bool) {
	var a struct {
		Cmd       string          `json:"cmd"`
		Targets   []string        `json:"targets"`
		Message   string          `json:"message"`
		Questions json.RawMessage `json:"questions"`
		Workdir   string          `json:"workdir"`
	}
	codexformat.Lenient(arguments, &a)
	switch name {
	case "exec_command":
		return codexformat.Item{Kind: codexformat.KindCommand, Name: name, Input: codexformat.Object("command", a.Cmd, "cwd", codexformat.First(a.Workdir, t.cwd))}, true
	case "apply_patch":
		return codexformat.Item{Kind: codexformat.KindFiles, Name: name, Input: codexformat.Object("patch", input)}, true
	case "wait_agent":
		if a.Targets == nil {
			a.Targets = []string{}
		}
		return codexformat.Item{Kind: codexformat.KindCollab, Name: name, Input: codexformat.Object("prompt", "", "threads", a.Targets)}, true
	case codexformat.AskTool:
		return codexformat.Item{Kind: kindAsk, Name: name, Input: codexformat.AskInput(a.Questions)}, true
	}
	return codexformat.Item{}, false
}

// running is in the result of a command that continues in the background.
const running = "Process running with session ID"

// uncompleted adds the calls that never became an item because they were not allowed or were
// aborted.
func (t *thread) uncompleted() {
	if t == nil {
		return
	}
	ids := make([]string, 0, len(t.calls))
	for id := range t.calls {
		if _, ok := t.items[id]; !ok {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return
	}
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(cmp.Compare(t.calls[a].place, t.calls[b].place), strings.Compare(a, b))
	})
	var found []*step
	taken := 0
	for _, id := range ids {
		c := t.calls[id]
		found, taken = append(found, t.found[taken:c.place]...), c.place
		steps := []*step{{ms: c.ms, turn: c.turn, what: stepBegin, item: c.item}}
		end := &step{ms: c.ended, turn: c.turn, what: stepEnd, item: c.item}
		end.item.Completed = c.ended
		switch {
		case c.ended == 0, strings.Contains(c.output, "aborted by user"):
		case c.item.Kind == kindAsk && !strings.HasPrefix(c.output, "{"):
			continue // the tool was not offered
		case c.item.Kind == kindAsk:
			end.item.Output = c.output
			steps = append(steps, end)
		case strings.Contains(c.output, codexformat.Rejected):
			end.item.Status, end.item.Output = codexformat.Declined, codexformat.Rejected
			steps = append(steps, end)
		case strings.Contains(c.output, running):
		default:
			continue // the agent rejected it before it began, and reported that only to the model
		}
		found = append(found, steps...)
	}
	t.found = append(found, t.found[taken:]...)
}

// notebook reads the notebook.
func (p *parser) notebook(data []byte) {
	for line := range bytes.Lines(data) {
		line = bytes.TrimSpace(line)
		if n, ok := stdio.ParseNote(line); ok {
			p.note(n)
			continue
		}
		l, ok := decodeFrame(line)
		if !ok || l.Method == "" {
			continue
		}
		f := l.Params
		if f.Thread == "" {
			continue
		}
		t := p.thread(f.Thread)
		switch l.Method {
		case "item/started", "item/completed":
			it, ok := codexformat.DecodeItem(f.Item)
			if !ok {
				continue
			}
			s := &step{ms: it.Started, turn: f.Turn, what: stepBegin, item: it}
			if l.Method == "item/completed" {
				s.ms, s.what = it.Completed, stepEnd
				t.ended[it.ID] = true
			} else {
				t.began[it.ID] = true
			}
			t.noted = append(t.noted, s)
		case "error":
			t.noted = append(t.noted, &step{ms: l.Sent, turn: f.Turn, what: stepRetry, words: codexformat.Problem(f.Error)})
		case "turn/completed":
			var info struct {
				ID     string          `json:"id"`
				Status string          `json:"status"`
				Error  json.RawMessage `json:"error"`
				Ended  int64           `json:"completedAt"`
			}
			if codexformat.Lenient(f.Info, &info) {
				t.turns[info.ID] = true
				t.noted = append(t.noted, &step{ms: l.Sent, turn: info.ID, what: stepTimedOut, end: codexformat.Verdict{
					Status: info.Status, Message: codexformat.Problem(info.Error), MS: info.Ended * 1000,
				}})
			}
		}
	}
}

// note reads a note of the notebook.
func (p *parser) note(n stdio.Note) {
	var d codexformat.ItemData
	if n.Type == stdio.NoteRun {
		p.root = n.ID
		return
	}
	if !codexformat.Lenient(n.Data, &d) || d.Thread == "" {
		return
	}
	t := p.thread(d.Thread)
	s := &step{ms: d.At, turn: d.Turn, note: n}
	switch n.Type {
	case codexformat.NoteBegan:
		s.what, s.item = stepBegin, codexformat.Item{Kind: d.Kind, ID: n.ID, Started: d.At}
		t.began[n.ID] = true
	case codexformat.NoteEnded:
		s.what, s.item = stepEnd, codexformat.Item{ID: n.ID, Completed: d.At}
		t.ended[n.ID] = true
	case codexformat.NoteWords:
		s.what, s.item, s.words = stepText, codexformat.Item{ID: n.ID}, d.Text
	case codexformat.NoteAsked, codexformat.NoteAnswered:
		s.what = stepQuestion
		t.began[n.ID], t.ended[n.ID] = true, true
	case stdio.NoteDeadline:
		s.what = stepDeadline
	default:
		return
	}
	t.noted = append(t.noted, s)
}

// steps returns all steps of a thread in order. Steps from the notebook are in its order; steps
// that only the rollout has are inserted by time.
func (t *thread) steps() []*step {
	var found []*step
	for _, s := range t.found {
		switch {
		case s.what == stepBegin && t.began[s.item.ID], s.what == stepEnd && t.ended[s.item.ID], s.what == stepTimedOut && t.turns[s.turn]:
			continue
		}
		found = append(found, s)
	}
	slices.SortStableFunc(found, func(a, b *step) int { return cmp.Compare(a.ms, b.ms) })
	out := make([]*step, 0, len(found)+len(t.noted))
	for _, s := range t.noted {
		for len(found) > 0 && found[0].ms < s.ms {
			out, found = append(out, found[0]), found[1:]
		}
		if it, ok := t.items[s.item.ID]; ok && s.item.ID != "" && (s.what == stepBegin || s.what == stepEnd) && s.item.Name == "" {
			s.item = it
		}
		out = append(out, s)
	}
	return append(out, found...)
}

// conversation combines the threads, the main one first.
func (p *parser) conversation() conversation.Conversation {
	var folder conversation.Folder
	events := make([][]conversation.Event, 0, len(p.order))
	for _, t := range p.order {
		// Threads without a parent are part of the main conversation, which may continue in a new
		// thread or in a fork.
		r := reader{Root: p.root}
		done := map[string]bool{}
		if t.main || t.id == p.root {
			r.Root, done = t.id, p.ended
		}
		events = append(events, p.events(&r, t, done))
	}
	order := make([]int, len(p.order))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.order[a].first, p.order[b].first) })
	for _, i := range order {
		for _, e := range events[i] {
			folder.Add(e)
		}
	}
	return folder.Conversation()
}

// events returns the events of a thread. done contains the items of its conversation that have
// ended in any way.
func (p *parser) events(r *reader, t *thread, done map[string]bool) []conversation.Event {
	var events []conversation.Event
	var at time.Time
	for _, s := range t.steps() {
		at = time.UnixMilli(s.ms).UTC()
		where := place{thread: t.id, turn: s.turn, at: at}
		switch s.what {
		case stepTurn:
			// Blocks left open by an earlier turn were aborted with its process.
			events = append(events, r.Cut(at)...)
			continue
		case stepBegin:
			if !done[s.item.ID] && s.item.Kind != "" {
				events = append(events, r.begin(where, s.item)...)
			}
		case stepEnd:
			if s.item.Kind != "" && !done[s.item.ID] && (s.item.Kind != codexformat.KindCompaction || s.item.ID != "") {
				done[s.item.ID] = true
				events = append(events, r.finish(where, s.item)...)
			}
		case stepText:
			events = append(events, r.say(where, s.item.ID, s.words, 0)...)
		case stepRetry:
			events = append(events, r.retry(where, s.words, s.ms)...)
		case stepQuestion:
			events = append(events, r.question(s.note, at)...)
		case stepDeadline:
			events = append(events, r.deadline(s.note, at)...)
		case stepTimedOut:
			for _, o := range r.Open {
				done[o.Block.ID] = true
			}
			events = append(events, r.endTurn(where, s.end)...)
		}
		if t.first == 0 && len(events) > 0 {
			t.first = s.ms
		}
		events = append(events, p.left(r, at)...)
	}
	return append(events, r.Cut(at)...)
}

// left closes the blocks of subagents whose first turn has ended.
func (p *parser) left(r *reader, at time.Time) []conversation.Event {
	var events []conversation.Event
	for _, o := range slices.Clone(r.Open) {
		if o.Block.Type != conversation.Subagent || o.Block.SubagentID == "" {
			continue
		}
		if child := p.threads[o.Block.SubagentID]; child != nil && child.hasLast {
			events = append(events, r.Close(o, child.last.Block(), at))
		}
	}
	return events
}

// isNotebook reports whether a transcript file is a notebook.
func isNotebook(name string) bool { return path.Base(path.Dir(filepath.ToSlash(name))) == "overwinter" }
