package codexbridge

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent/codex/codexformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
)

// recall finds the main thread, which can be resumed, and the prompts delivered to it. The notebook
// names the thread; if the notebook is lost, it is the newest rollout that belongs to no subagent.
func (p *program) recall(notebook []byte) {
	for line := range bytes.Lines(notebook) {
		if n, ok := stdio.ParseNote(bytes.TrimSpace(line)); ok && n.Type == stdio.NoteRun && n.ID != "" {
			p.thread = n.ID
		}
	}
	if p.thread == "" && !p.resume {
		return
	}
	files, err := filepath.Glob(filepath.Join(p.home, "sessions/*/*/*/rollout-*.jsonl"))
	if err != nil {
		return // the pattern is constant
	}
	slices.SortFunc(files, func(a, b string) int { return strings.Compare(filepath.Base(b), filepath.Base(a)) })
	for _, name := range files {
		if p.thread != "" && !strings.Contains(filepath.Base(name), p.thread) {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		head := codexformat.Owner(data)
		if head.ID == "" || head.Parent != "" {
			continue
		}
		p.thread = head.ID
		p.remember(data)
		return
	}
	p.thread = ""
}

// remember reads the prompts in a rollout, and their outcomes.
func (p *program) remember(rollout []byte) {
	runs := map[string]string{} // by turn
	for line := range bytes.Lines(rollout) {
		l, ok := codexformat.DecodeRecord(line)
		if !ok || l.Type != "event_msg" {
			continue
		}
		switch e := l.Payload; e.Type {
		case "item_completed":
			it, ok := codexformat.DecodeItem(e.Item)
			if run, _, _ := codexformat.ParseClientID(it.Client); ok && run != "" {
				runs[e.Turn] = run
				p.delivered[run] = &delivery{turn: e.Turn}
			}
		case "task_complete", "turn_complete", "turn_aborted":
			if d := p.delivered[runs[e.Turn]]; d != nil {
				d.verdict = verdictOf(e.Verdict())
			}
		}
	}
}
