package demo

import (
	"bytes"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/demo/demoformat"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// Parse reads transcript.jsonl and the files of subagents. It skips lines that it does not
// understand and never fails.
func (Adapter) Parse(files []transcript.File) (conversation.Conversation, error) {
	p := parser{subagents: map[string][]byte{}}
	var main []byte
	for _, f := range files {
		switch id, ok := subagentOf(f.Path); {
		case ok:
			p.subagents[id] = f.Data
			p.ids = append(p.ids, id)
		case path.Base(f.Path) == demoformat.MainFile:
			main = f.Data
		}
	}
	p.file(main)
	// Subagents whose call is missing in a truncated main file. Their ids sort by age.
	slices.Sort(p.ids)
	for _, id := range p.ids {
		p.subagent(id)
	}
	return p.folder.Conversation(), nil
}

type parser struct {
	folder    conversation.Folder
	subagents map[string][]byte // not read yet
	ids       []string
}

// file folds one file, and each subagent at the position of its call, so that conversations are in
// the order in which they appeared.
func (p *parser) file(data []byte) {
	var t translator
	for raw := range bytes.Lines(data) {
		l, ok := demoformat.DecodeLine(raw)
		if !ok {
			continue
		}
		t.read(l, l.At)
		p.fold(t.Out.Events)
		t.Out = agent.Translation{}
		if l.Type == demoformat.LineToolUse && l.Subagent != "" {
			p.subagent(l.Subagent)
		}
	}
	p.fold(t.Cut(time.Time{})) // open when its process died
}

func (p *parser) subagent(id string) {
	data, ok := p.subagents[id]
	if !ok {
		return
	}
	delete(p.subagents, id)
	p.file(data)
}

func (p *parser) fold(events []conversation.Event) {
	for _, e := range events {
		p.folder.Add(e)
	}
}

// subagentOf returns the id of the subagent whose transcript has this path.
func subagentOf(name string) (string, bool) {
	dir, file := path.Split(name)
	id, ok := strings.CutSuffix(file, ".jsonl")
	return id, ok && id != "" && path.Base(dir) == demoformat.SubagentDir
}
