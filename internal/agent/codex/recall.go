package codex

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent/bridge"
)

// recall finds out what there is to go on with: the main thread, and which prompts it has had. The
// journal names the thread; where it is lost, the newest rollout that is nobody's subagent does.
func (p *program) recall(journal []byte) {
	for line := range bytes.Lines(journal) {
		if n, ok := bridge.ParseNote(bytes.TrimSpace(line)); ok && n.Type == bridge.NoteRun && n.ID != "" {
			p.thread = n.ID
		}
	}
	if p.thread == "" && !p.resume {
		return
	}
	files, err := filepath.Glob(filepath.Join(p.home, "sessions/*/*/*/rollout-*.jsonl"))
	if err != nil {
		return // the pattern is ours
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
		id, parent := owner(data)
		if id == "" || parent != "" {
			continue
		}
		p.thread = id
		p.remember(data)
		return
	}
	p.thread = ""
}

// owner is the thread of a rollout, and the one that has started it.
func owner(data []byte) (id, parent string) {
	line, _, _ := bytes.Cut(data, []byte("\n"))
	var l struct {
		Payload struct {
			ID     string `json:"id"`
			Parent string `json:"parent_thread_id"`
		} `json:"payload"`
	}
	if !lenient(line, &l) {
		return "", ""
	}
	return l.Payload.ID, l.Payload.Parent
}

// remember reads which prompts a rollout has, and what became of them.
func (p *program) remember(rollout []byte) {
	runs := map[string]string{} // by turn
	for line := range bytes.Lines(rollout) {
		var l record
		if skip(line) || json.Unmarshal(line, &l) != nil || l.Type != "event_msg" {
			continue
		}
		var e struct {
			Type  string          `json:"type"`
			Turn  string          `json:"turn_id"`
			Item  json.RawMessage `json:"item"`
			Error json.RawMessage `json:"error"`
		}
		if !lenient(l.Payload, &e) {
			continue
		}
		v := verdict{status: completed}
		switch e.Type {
		case "item_completed":
			it, ok := decodeItem(e.Item)
			if run, _, _ := parseClientID(it.client); ok && run != "" {
				runs[e.Turn] = run
				p.delivered[run] = &delivery{turn: e.Turn}
			}
			continue
		case "turn_aborted":
			v.status = interrupted
		case "task_complete", "turn_complete":
			if len(e.Error) > 0 && string(e.Error) != "null" {
				v.status, v.message = failed, problem(e.Error)
			}
		default:
			continue
		}
		if d := p.delivered[runs[e.Turn]]; d != nil {
			d.verdict = verdictOf(v)
		}
	}
}
