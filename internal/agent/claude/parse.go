package claude

import (
	"bytes"
	"cmp"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/overwinter-dev/overwinter/internal/agent/jsonscan"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// Locations of the transcripts of subagents, below the directory of the session.
const (
	subagentDir    = "subagents"
	subagentPrefix = "agent-"
	metaSuffix     = ".meta.json"
)

// Parse reads the transcript of a session, <session>.jsonl, with <session>/subagents/agent-*.jsonl
// and their *.meta.json. Several sessions, as after a fork, are read as one, each line once. Parse
// skips lines that it does not understand. It never fails.
func (Adapter) Parse(files []transcript.File) (conversation.Conversation, error) {
	p := parser{seen: map[string]struct{}{}, calls: map[string]*conversationFile{}, byID: map[string]*conversationFile{}}
	var mains, others []*conversationFile
	for _, f := range files {
		switch id, kind := transcriptOf(f.Path); kind {
		case metaFile:
			p.transcript(id, &others).meta(f.Data)
		case subagentFile:
			p.transcript(id, &others).data = f.Data
		case mainFile:
			mains = append(mains, &conversationFile{id: id, data: f.Data, begun: begun(f.Data)})
		}
	}
	for _, t := range others {
		if t.call != "" {
			p.calls[t.call] = t
		}
	}
	// A session's file is named after its uuid. Other files are read only if no file has such a
	// name.
	if slices.ContainsFunc(mains, named) {
		mains = slices.DeleteFunc(mains, func(m *conversationFile) bool { return !named(m) })
	}
	slices.SortStableFunc(mains, func(a, b *conversationFile) int { return a.begun.Compare(b.begun) })
	for _, m := range mains {
		p.main(m.data)
	}
	// Subagents whose call is not in the transcript, in the order in which they began.
	for _, t := range others {
		t.begun = begun(t.data)
	}
	slices.SortStableFunc(others, func(a, b *conversationFile) int {
		return cmp.Or(a.begun.Compare(b.begun), strings.Compare(a.id, b.id))
	})
	for _, t := range others {
		p.subagent(t, "", t.begun)
	}
	return p.folder.Conversation(), nil
}

// conversationFile is the file of a subagent or a session.
type conversationFile struct {
	id       string
	call     string // id of the call that started the subagent
	finished bool
	data     []byte
	begun    time.Time
	read     bool
}

type fileKind int

const (
	otherFile fileKind = iota
	mainFile
	subagentFile
	metaFile
)

// named reports whether the file has the name of a session.
func named(t *conversationFile) bool {
	_, err := uuid.Parse(t.id)
	return err == nil && len(t.id) == 36
}

// transcriptOf returns the kind of a file and the id of its subagent or session.
func transcriptOf(name string) (string, fileKind) {
	base := path.Base(name)
	sub := slices.Contains(strings.Split(path.Dir(name), "/"), subagentDir)
	if id, ok := strings.CutPrefix(base, subagentPrefix); ok && (sub || strings.HasSuffix(id, metaSuffix)) {
		if id, ok := strings.CutSuffix(id, metaSuffix); ok {
			return id, metaFile
		}
		if id, ok := strings.CutSuffix(id, ".jsonl"); ok {
			return id, subagentFile
		}
		return "", otherFile
	}
	if id, ok := strings.CutSuffix(base, ".jsonl"); ok {
		return id, mainFile
	}
	return "", otherFile
}

// meta reads the agent's metadata of a subagent.
func (t *conversationFile) meta(data []byte) {
	jsonscan.Fields(data, func(key, value []byte) {
		switch string(key) {
		case "toolUseId":
			t.call = jsonscan.Text(value)
		case "finished":
			t.finished = jsonscan.IsTrue(value)
		}
	})
}

// begun returns the time of the first line that has one.
func begun(data []byte) time.Time {
	for raw := range bytes.Lines(data) {
		if l, ok := decode(raw); ok && len(l.at) > 2 {
			return l.time(time.Time{})
		}
	}
	return time.Time{}
}

type parser struct {
	folder conversation.Folder
	seen   map[string]struct{}          // uuids of the lines read so far
	calls  map[string]*conversationFile // by the call that started the subagent
	byID   map[string]*conversationFile
}

// transcript returns the record of a subagent and creates it if necessary.
func (p *parser) transcript(id string, all *[]*conversationFile) *conversationFile {
	if t, ok := p.byID[id]; ok {
		return t
	}
	t := &conversationFile{id: id}
	p.byID[id] = t
	*all = append(*all, t)
	return t
}

// fileReader reads the lines of one file.
type fileReader struct {
	*parser
	reader
	at   time.Time // time of the newest line
	held []record  // a compaction, until it is known whether a command requested it
}

func (p *parser) main(data []byte) {
	f := fileReader{parser: p, reader: reader{Holding: true}}
	f.read(data)
}

// subagent reads the transcript of a subagent at the position of its call, once.
func (p *parser) subagent(t *conversationFile, call string, created time.Time) {
	if t.read {
		return
	}
	t.read = true
	f := fileReader{parser: p}
	f.first(t, call, created)
	f.read(t.data)
}

// first shows the prompt of the subagent, as the stream does when the subagent starts.
func (f *fileReader) first(t *conversationFile, call string, created time.Time) {
	for raw := range bytes.Lines(t.data) {
		l, ok := decode(raw)
		if !ok || !jsonscan.Is(l.kind, "user") {
			continue
		}
		if prompt := words(decodeMessage(l.message).content); prompt != "" && !l.isMeta {
			f.fold(f.enters(subagent{ID: t.id, ToolUseID: call}, prompt, created))
			f.seen[string(l.uuid)] = struct{}{}
		}
		return
	}
}

func (f *fileReader) read(data []byte) {
	for raw := range bytes.Lines(data) {
		l, ok := decode(raw)
		if !ok {
			continue
		}
		switch string(l.kind[1 : len(l.kind)-1]) {
		case "assistant", "user", "system", "attachment":
		default:
			continue
		}
		if len(l.uuid) > 2 {
			if _, ok := f.seen[string(l.uuid)]; ok {
				continue
			}
			f.seen[string(l.uuid)] = struct{}{}
		}
		f.at = l.time(f.at)
		f.line(l)
	}
	f.unhold()
	f.finish()
}

// line reads one line of a transcript.
func (f *fileReader) line(l record) {
	if len(f.held) > 0 && !f.hold(l) {
		return
	}
	switch {
	case jsonscan.Is(l.kind, "assistant"):
		f.fold(f.assistant(l, f.at))
		f.children(l)
	case jsonscan.Is(l.kind, "user"):
		f.launched(l)
		f.fold(f.user(l, f.at))
	case jsonscan.Is(l.kind, "attachment"):
		if q := queued(l); len(q.uuid) > 0 {
			f.fold(f.user(q, f.at))
		} else if words := hooked(l.body); words != "" {
			f.fold(f.system(f.conversationOf(l), jsonscan.Text(l.uuid), "notice", words, l, f.at))
		}
	case jsonscan.Is(l.subtype, "compact_boundary"):
		f.held = append(f.held, l)
	case jsonscan.Is(l.subtype, "api_error"):
		f.failed(l)
	case l.noted():
		f.fold(f.system(f.conversationOf(l), jsonscan.Text(l.uuid), "notice", jsonscan.Text(l.content), l, f.at))
	case jsonscan.Is(l.subtype, "local_command"):
		if words, ok := printed(jsonscan.Text(l.content)); ok {
			f.fold(f.commandOutput(f.conversationOf(l), jsonscan.Text(l.uuid), words, l, f.at))
		}
	}
}

// hold delays a compaction until the command that requested it has been shown, because the
// transcript has them in reverse order. It reports whether the line must still be read.
func (f *fileReader) hold(l record) bool {
	switch {
	case l.isSummary:
		f.held = append(f.held, l)
		return false
	case l.isMeta, jsonscan.Is(l.kind, "attachment"):
		return true
	case jsonscan.Is(l.kind, "user") && opens(words(decodeMessage(l.message).content), commandTag):
		f.fold(f.user(l, f.at))
		f.unhold()
		return false
	}
	f.unhold()
	return true
}

func (f *fileReader) unhold() {
	for _, l := range f.held {
		if l.isSummary {
			f.fold(f.user(l, f.at))
		} else {
			f.fold(f.compacted(l, f.at))
		}
	}
	f.held = nil
}

// failed reads a record of a failed request to the model, which was sent again.
func (f *fileReader) failed(l record) {
	var attempt, limit, status []byte
	jsonscan.Fields(l.raw, func(key, value []byte) {
		switch string(key) {
		case "retryAttempt":
			attempt = value
		case "maxRetries":
			limit = value
		case "error":
			status = jsonscan.Field(value, "status")
		}
	})
	if len(attempt) == 0 {
		return
	}
	f.fold(f.retried(l, string(attempt), string(limit), string(status), f.at))
}

// children reads the subagents that an assistant line calls.
func (f *fileReader) children(l record) {
	jsonscan.Elements(decodeMessage(l.message).content, func(raw []byte) {
		p := decodePart(raw)
		if !p.isTool() {
			return
		}
		if t, ok := f.calls[jsonscan.Text(p.id)]; ok {
			f.child(t, jsonscan.Text(p.id))
		}
	})
}

// launched reads the subagent that a result names, if no earlier line has linked the subagent to
// its call.
func (f *fileReader) launched(l record) {
	result := jsonscan.Field(l.raw, "toolUseResult")
	if len(result) == 0 || result[0] != '{' {
		return
	}
	t, ok := f.byID[jsonscan.Text(jsonscan.Field(result, "agentId"))]
	if !ok {
		return
	}
	jsonscan.Elements(decodeMessage(l.message).content, func(raw []byte) {
		if p := decodePart(raw); p.isResult() {
			f.child(t, jsonscan.Text(p.toolUseID))
		}
	})
}

func (f *fileReader) child(t *conversationFile, call string) {
	o := f.find(call)
	if o == nil || o.Block.Type != conversation.Subagent || o.Block.SubagentID != "" {
		return
	}
	f.fold(f.enters(subagent{ID: t.id, ToolUseID: call}, "", f.at))
	f.subagent(t, call, o.Block.CreatedAt)
}

// finish aborts the blocks that were open when their process died.
func (f *fileReader) finish() {
	for _, a := range slices.Clone(f.Agents) {
		if t, ok := f.byID[a.ID]; ok && t.finished {
			if o := f.find(a.ToolUseID); o != nil {
				f.fold([]conversation.Event{f.close(o, conversation.Success, f.at)})
			}
		}
	}
	f.fold(f.cut(f.at))
}

func (f *fileReader) fold(events []conversation.Event) {
	for _, e := range events {
		f.folder.Add(e)
	}
}
