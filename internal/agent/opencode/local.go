package opencode

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode/opencodeformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/lazyregexp"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

var _ agent.Movable = Adapter{}

// Local returns access to the sessions of OpenCode on a machine, which are in its database. Its own
// commands list, export and import them. In a sandbox, the bridge saves the same exports.
func (Adapter) Local(m agent.Machine) agent.Local { return local{m} }

type local struct{ agent.Machine }

const localProgram = "opencode"

// Where implements agent.Local.
func (local) Where(dir string) string { return localProgram + " session list in " + dir }

// List implements agent.Local. The program lists the sessions of a whole repository, or of all
// directories outside of any repository.
func (l local) List(ctx context.Context, dir string) ([]agent.LocalSession, error) {
	out, err := l.Run(ctx, dir, localProgram, "session", "list", "--format", "json")
	if err != nil {
		return nil, err
	}
	if out = bytes.TrimSpace(out); len(out) == 0 {
		return nil, nil
	}
	var all []struct {
		ID        string  `json:"id"`
		Directory string  `json:"directory"`
		Updated   float64 `json:"updated"` // milliseconds
	}
	if err := json.Unmarshal(out, &all); err != nil {
		return nil, fmt.Errorf("the output of %s session list cannot be read: %w", localProgram, err)
	}
	var list []agent.LocalSession
	for _, s := range all {
		if s.Directory == dir {
			list = append(list, agent.LocalSession{ID: s.ID, At: time.UnixMilli(int64(s.Updated))})
		}
	}
	slices.SortFunc(list, func(a, b agent.LocalSession) int { return b.At.Compare(a.At) })
	return list, nil
}

// sessionName matches the id of a session.
var sessionName = lazyregexp.New(`^ses_[A-Za-z0-9]{1,64}$`)

// export returns a session as the program exports it.
func (l local) export(ctx context.Context, dir, id string) ([]byte, error) {
	if !sessionName.MatchString(id) {
		return nil, fmt.Errorf("%q is not the id of a session of OpenCode", id)
	}
	out, err := l.Run(ctx, dir, localProgram, "export", id)
	if err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, out); err != nil {
		return nil, fmt.Errorf("the export of session %s cannot be read: %w", id, err)
	}
	if info, _, err := opencodeformat.ExportInfo(compact.Bytes()); err != nil || info.ID != id {
		return nil, fmt.Errorf("the export of session %s has another session, or none", id)
	}
	return compact.Bytes(), nil
}

// maxSubagents bounds the subagent sessions that are moved with a session.
const maxSubagents = 1000

// Pack implements agent.Local.
func (l local) Pack(ctx context.Context, dir, id string) (agent.Moved, error) {
	memory := session.DerivedID(session.SessionPrefix, "opencode", id)
	m := agent.Moved{MemoryID: memory}
	folder := transcriptDir(l.Sandbox.Home, memory)
	ids, left := []string{id}, transcript.MaxRevertBytes
	for i := 0; i < len(ids) && i <= maxSubagents; i++ {
		data, err := l.export(ctx, dir, ids[i])
		if err != nil && i > 0 {
			continue // of a subagent, and deleted
		}
		if err != nil {
			return m, err
		}
		if left -= len(data); left < 0 {
			return m, fmt.Errorf("session %s has more than %d bytes, which is too much to be moved", id, transcript.MaxRevertBytes)
		}
		for _, child := range started(data) {
			if !slices.Contains(ids, child) {
				ids = append(ids, child)
			}
		}
		saved := append([]byte(`{"overwinter":true,`), data[1:]...)
		m.Files = append(m.Files, transcript.File{Path: path.Join(folder, ids[i]+opencodeformat.TranscriptSuffix), Data: append(saved, '\n')})
	}
	return m, nil
}

// started returns the sessions of subagents that were started in a session.
func started(export []byte) []string {
	var e struct {
		Messages []struct {
			Parts []struct {
				Tool  string `json:"tool"`
				State struct {
					Metadata struct {
						SessionID string `json:"sessionId"`
					} `json:"metadata"`
				} `json:"state"`
			} `json:"parts"`
		} `json:"messages"`
	}
	_ = json.Unmarshal(export, &e) // parts of another form start no subagent
	var ids []string
	for _, m := range e.Messages {
		for _, p := range m.Parts {
			if id := p.State.Metadata.SessionID; p.Tool == taskTool && sessionName.MatchString(id) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// Unpack implements agent.Local. The program has one session per id, in any directory, and would
// move an existing one. If a session was pushed from this machine and still exists, it is pulled
// with new ids.
func (l local) Unpack(ctx context.Context, dir string, m agent.Moved) (id string, err error) {
	folder := transcriptDir(l.Sandbox.Home, m.MemoryID) + "/"
	exports := map[string][]byte{}
	var main opencodeformat.SessionInfo
	for _, f := range m.Files {
		info, messages, err := opencodeformat.ExportInfo(f.Data)
		if err != nil || f.Path != folder+info.ID+opencodeformat.TranscriptSuffix || !sessionName.MatchString(info.ID) {
			continue
		}
		exports[info.ID] = f.Data
		if info.ParentID == "" && messages > 0 && info.Time.Created >= main.Time.Created {
			main = info
		}
	}
	if main.ID == "" {
		return "", agent.ErrNoMemory
	}
	ids := []string{main.ID}
	for i := 0; i < len(ids); i++ {
		for _, child := range started(exports[ids[i]]) {
			if exports[child] != nil && !slices.Contains(ids, child) {
				ids = append(ids, child)
			}
		}
	}
	for i, id := range ids {
		note := m.Note
		if i > 0 {
			note = "" // only for the main agent
		}
		if exports[id], err = arriving(exports[id], note); err != nil {
			return "", fmt.Errorf("the export of session %s: %w", id, err)
		}
	}
	rename := strings.NewReplacer()
	if _, err := l.export(ctx, dir, main.ID); err == nil {
		rename = strings.NewReplacer(otherIDs(exports, ids)...)
	}
	f, err := os.CreateTemp("", "overwinter-pull-*.json")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	for _, id := range ids {
		if err := os.WriteFile(f.Name(), []byte(rename.Replace(string(exports[id]))), 0o600); err != nil {
			return "", err
		}
		if _, err := l.Run(ctx, dir, localProgram, "import", f.Name()); err != nil {
			return "", err
		}
	}
	return rename.Replace(main.ID), nil
}

// ownID matches the ids of sessions, messages and parts.
var ownID = lazyregexp.New(`"id":\s*"((?:ses|msg|prt)_[A-Za-z0-9]{26})"`)

// otherIDs returns pairs of the present id and a new one with the same time, by which the program
// orders them.
func otherIDs(exports map[string][]byte, sessions []string) []string {
	seen := map[string]bool{}
	var pairs []string
	for _, id := range sessions {
		for _, m := range ownID.FindAllStringSubmatch(string(exports[id]), -1) {
			if have := m[1]; !seen[have] {
				seen[have] = true
				pairs = append(pairs, have, have[:len(have)-randomPart]+strings.ToLower(rand.Text()[:randomPart]))
			}
		}
	}
	return pairs
}

// randomPart is how many characters follow the time in an id.
const randomPart = 14

// arriving returns an export without the permissions that its session had, which the program would
// keep, and with a note for the model as its newest message, which the program does not show.
func arriving(export []byte, note string) ([]byte, error) {
	var e, info map[string]json.RawMessage
	var messages []json.RawMessage
	err := json.Unmarshal(export, &e)
	if err == nil {
		err = json.Unmarshal(e["info"], &info)
	}
	if err == nil {
		err = json.Unmarshal(e["messages"], &messages)
	}
	if err != nil {
		return nil, err
	}
	for key, value := range info {
		if strings.EqualFold(key, "permission") {
			info[key] = denied(value)
		}
	}
	if note != "" {
		messages = append(messages, noted(messages, note)...)
	}
	e["info"], e["messages"] = encoded(info), encoded(messages)
	return json.Marshal(e)
}

// rule is a permission of a session.
type rule struct {
	Permission string `json:"permission"`
	Pattern    string `json:"pattern"`
	Action     string `json:"action"`
}

// denied returns the permissions of a session that deny.
func denied(raw json.RawMessage) json.RawMessage {
	rules := []rule{}
	_ = json.Unmarshal(raw, &rules) // ignore other forms
	return encoded(slices.DeleteFunc(rules, func(r rule) bool { return r.Action != "deny" }))
}

// noted returns the message with a note, which follows the last message.
func noted(messages []json.RawMessage, note string) []json.RawMessage {
	var last, user struct {
		Info struct {
			ID        string          `json:"id"`
			SessionID string          `json:"sessionID"`
			Role      string          `json:"role"`
			Agent     json.RawMessage `json:"agent"`
			Model     json.RawMessage `json:"model"`
		} `json:"info"`
	}
	for _, raw := range messages {
		_ = json.Unmarshal(raw, &last) // ignore other forms
		if last.Info.Role == "user" {
			user = last
		}
	}
	if user.Info.ID == "" {
		return nil
	}
	now := time.Now()
	id := followingID(last.Info.ID, now)
	return []json.RawMessage{encoded(map[string]any{
		"info": map[string]any{
			"id": "msg_" + id, "sessionID": user.Info.SessionID, "role": "user", "time": map[string]int64{"created": now.UnixMilli()},
			"agent": user.Info.Agent, "model": user.Info.Model,
		},
		"parts": []map[string]any{{
			"id": "prt_" + id, "messageID": "msg_" + id, "sessionID": user.Info.SessionID, "type": opencodeformat.PartText,
			"text": stdio.Reminder(note), "synthetic": true,
		}},
	})}
}

// followingID returns an id, without its kind, that the program orders after the last one.
func followingID(last string, at time.Time) string {
	const digits, perMilli = 12, 1 << 12
	count := uint64(at.UnixMilli()) * perMilli % (1 << (4 * digits)) //nolint:gosec // later than 1970
	_, last, _ = strings.Cut(last, "_")
	if have, err := strconv.ParseUint(last[:min(digits, len(last))], 16, 64); err == nil && have >= count {
		count = have + 1
	}
	return fmt.Sprintf("%0*x", digits, count) + strings.ToLower(rand.Text()[:randomPart])
}

func encoded(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil // decoded values can always be encoded
	}
	return raw
}

// Settings implements agent.Local.
func (local) Settings() []string {
	return []string{"opencode.json", "opencode.jsonc", ".opencode/opencode.json", ".opencode/opencode.jsonc", ".opencode/{plugin,plugins,tool,tools}/**"}
}

// Resume implements agent.Local.
func (local) Resume(id string) []string { return []string{localProgram, "--session", id} }
