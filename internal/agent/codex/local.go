package codex

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/codex/codexformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/lazyregexp"
	"github.com/overwinter-dev/overwinter/internal/runner/regular"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

var _ agent.Movable = Adapter{}

// Local returns access to the sessions of Codex on a machine: rollouts grouped by the day on which
// they began, whose first line contains the directory. In a sandbox they have the same names,
// another directory, and the model provider that the bridge configures.
func (Adapter) Local(m agent.Machine) agent.Local {
	return local{m, cmp.Or(m.Getenv("CODEX_HOME"), filepath.Join(m.Home, codexHome))}
}

type local struct {
	agent.Machine
	home string
}

const (
	rollouts   = "sessions/*/*/*/rollout-*.jsonl"
	compressed = ".zst"                        // suffix of a rollout that the program has compressed; see local_thread_store_compression
	archived   = "archived_sessions/rollout-*" // sessions that the program does not list
)

// rolloutName matches a rollout below the directory of the agent.
var rolloutName = lazyregexp.New(`^sessions/\d{4}/\d\d/\d\d/rollout-[0-9T-]+-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\.jsonl$`)

// Where implements agent.Local.
func (l local) Where(dir string) string {
	return filepath.Join(l.home, rollouts) + " with the working directory " + dir
}

// rollout is a file of a thread.
type rollout struct {
	codexformat.Payload
	name string
	info fs.FileInfo
}

// all returns the rollouts of the machine.
func (l local) all() ([]rollout, error) {
	names, err := l.names()
	if err != nil {
		return nil, err
	}
	var list []rollout
	for _, name := range names {
		r := rollout{name: name}
		line, err := firstLine(name)
		if err == nil {
			r.info, err = os.Stat(name)
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, regular.ErrNotRegular) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if r.Payload = codexformat.Owner(line); r.ID != "" {
			list = append(list, r)
		}
	}
	return list, nil
}

// names returns the files with the rollouts of the machine, one per rollout.
func (l local) names() ([]string, error) {
	plain, err := filepath.Glob(filepath.Join(l.home, rollouts))
	if err != nil {
		return nil, err
	}
	packed, err := filepath.Glob(filepath.Join(l.home, rollouts+compressed))
	for _, name := range packed {
		if !slices.Contains(plain, strings.TrimSuffix(name, compressed)) { // otherwise it is being compressed or decompressed
			plain = append(plain, name)
		}
	}
	return plain, err
}

// maxHead bounds the first line of a rollout, which contains the agent's instructions.
const maxHead = 4 << 20

func firstLine(name string) ([]byte, error) {
	f, err := regular.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // opened only for reading
	var content io.Reader = f
	if strings.HasSuffix(name, compressed) {
		d, err := zstd.NewReader(f, decoding...)
		if err != nil {
			return nil, err
		}
		defer d.Close()
		content = d
	}
	lines := bufio.NewScanner(content)
	lines.Buffer(nil, maxHead)
	lines.Scan()
	return lines.Bytes(), nil // a longer first line is not that of a rollout
}

// decoding bounds the memory for decoding a compressed rollout.
var decoding = []zstd.DOption{zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(transcript.MaxRevertBytes)}

// decompressed returns the files of a session in the uncompressed form that the program uses.
func decompressed(files []transcript.File) ([]transcript.File, error) {
	left := int64(transcript.MaxRevertBytes)
	for i, f := range files {
		name, ok := strings.CutSuffix(f.Path, compressed)
		if ok {
			d, err := zstd.NewReader(bytes.NewReader(f.Data), decoding...)
			if err != nil {
				return nil, err
			}
			data, err := io.ReadAll(io.LimitReader(d, left+1))
			d.Close()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.Path, err)
			}
			files[i] = transcript.File{Path: name, Data: data}
		}
		if left -= int64(len(files[i].Data)); left < 0 {
			return nil, fmt.Errorf("the files of the session have more than %d bytes, which is too much to be moved: %s", transcript.MaxRevertBytes, f.Path)
		}
	}
	return files, nil
}

// List implements agent.Local.
func (l local) List(_ context.Context, dir string) ([]agent.LocalSession, error) {
	all, err := l.all()
	if err != nil {
		return nil, err
	}
	var list []agent.LocalSession
	for _, r := range all {
		if r.Parent == "" && isSame(r.Cwd, dir) {
			list = append(list, agent.LocalSession{ID: r.ID, At: r.info.ModTime()})
		}
	}
	slices.SortFunc(list, func(a, b agent.LocalSession) int { return b.At.Compare(a.At) })
	return list, nil
}

// isSame reports whether a path refers to a directory.
func isSame(name, dir string) bool {
	if name == dir {
		return true
	}
	resolved, err := filepath.EvalSymlinks(name)
	return err == nil && resolved == dir
}

// Pack implements agent.Local.
func (l local) Pack(_ context.Context, dir, id string) (agent.Moved, error) {
	parsed, err := uuid.Parse(id)
	if err != nil || parsed.String() != id {
		return agent.Moved{}, fmt.Errorf("%q is not the id of a session of Codex", id)
	}
	all, err := l.all()
	if err != nil {
		return agent.Moved{}, err
	}
	var names []string
	family := family(all, id)
	for _, r := range all {
		if family[r.ID] {
			names = append(names, r.name)
		}
	}
	files, err := agent.ReadLocal(names)
	if err == nil {
		files, err = decompressed(files)
	}
	if err != nil {
		return agent.Moved{}, err
	}
	home := path.Join(l.Sandbox.Home, codexHome)
	var moved []transcript.File
	for _, f := range files {
		below, err := filepath.Rel(l.home, f.Path)
		if below = filepath.ToSlash(below); err != nil || !rolloutName.MatchString(below) {
			continue
		}
		data := elsewhere(agent.WholeLines(f.Data), dir, l.Sandbox.Workspace, codexformat.Provider)
		moved = append(moved, transcript.File{Path: path.Join(home, below), Data: data})
	}
	return agent.Moved{MemoryID: session.SessionPrefix + strings.ReplaceAll(id, "-", ""), Files: moved}, nil
}

// family returns the ids of a thread and of all its subagents, direct and indirect.
func family(all []rollout, id string) map[string]bool {
	ids := map[string]bool{id: true}
	for more := true; more; {
		more = false
		for _, r := range all {
			if ids[r.Parent] && !ids[r.ID] {
				ids[r.ID], more = true, true
			}
		}
	}
	return ids
}

// Unpack implements agent.Local. Ids are shared by all sessions of the machine, in any directory.
// If a session was pushed from this machine and still exists, it is pulled with new ids.
func (l local) Unpack(_ context.Context, dir string, m agent.Moved) (string, error) {
	home := path.Join(l.Sandbox.Home, codexHome)
	var all []rollout
	files := map[string]transcript.File{}
	var notebook []byte
	for _, f := range m.Files {
		below := strings.TrimPrefix(f.Path, home+"/")
		if f.Path == codexformat.NotebookPath(home, m.MemoryID) {
			notebook = f.Data
		} else if named := rolloutName.FindStringSubmatch(below); named != nil {
			if r := (rollout{Payload: codexformat.Owner(f.Data), name: below}); r.ID == named[1] {
				all = append(all, r)
				files[below] = f
			}
		}
	}
	id := mainThread(all, notebook)
	if id == "" {
		return "", agent.ErrNoMemory
	}
	family := family(all, id)
	renamed, err := l.renamed(family)
	if err != nil {
		return "", err
	}
	provider := l.provider()
	ids := strings.NewReplacer(renamed...)
	var out []transcript.File
	for _, r := range all {
		if family[r.ID] {
			data := elsewhere([]byte(ids.Replace(string(files[r.name].Data))), l.Sandbox.Workspace, dir, provider)
			data, last := unsettled(data, dir)
			if r.ID == id {
				data = append(data, noted(m.Note, last)...)
			}
			out = append(out, transcript.File{Path: filepath.Join(l.home, filepath.FromSlash(ids.Replace(r.name))), Data: data})
		}
	}
	return ids.Replace(id), agent.WriteLocal(out)
}

// mainThread returns the thread that the notebook names last, or else the newest that belongs to no
// subagent, as the bridge does.
func mainThread(all []rollout, notebook []byte) string {
	named := ""
	for line := range bytes.Lines(notebook) {
		if n, ok := stdio.ParseNote(bytes.TrimSpace(line)); ok && n.Type == stdio.NoteRun && n.ID != "" {
			named = n.ID
		}
	}
	var newest rollout
	for _, r := range all {
		if r.ID == named {
			return named
		}
		if r.Parent == "" && path.Base(r.name) > path.Base(newest.name) {
			newest = r
		}
	}
	return newest.ID
}

// renamed returns pairs of the present id and a new one, if the machine has a session with one of
// the present ids.
func (l local) renamed(ids map[string]bool) ([]string, error) {
	var have []string
	for _, pattern := range []string{rollouts + "*", archived} { // some rollouts are compressed
		names, err := filepath.Glob(filepath.Join(l.home, pattern))
		if err != nil {
			return nil, err
		}
		have = append(have, names...)
	}
	taken := false
	var pairs []string
	for id := range ids {
		taken = taken || slices.ContainsFunc(have, func(name string) bool { return strings.Contains(filepath.Base(name), id) })
		other, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, id, other.String())
	}
	if !taken {
		return nil, nil
	}
	return pairs, nil
}

// chosenProvider matches the model provider in the first part of the user's configuration, before its first table.
var chosenProvider = lazyregexp.New(`(?m)^\s*model_provider\s*=\s*["']([^"'\n]*)["']`)

// provider returns the model provider that sessions of the machine use. The program does not resume
// a session of a provider that is not configured.
func (l local) provider() string {
	const most = 1 << 20
	data, err := regular.Read(filepath.Join(l.home, "config.toml"), most)
	if err == nil {
		data, _, _ = bytes.Cut(append([]byte("\n"), data...), []byte("\n["))
		if m := chosenProvider.FindStringSubmatch(string(data)); m != nil {
			return m[1]
		}
	}
	return "openai"
}

// entry contains the fields of a rollout line that a move needs.
type entry struct {
	Type    string          `json:"type"`
	Ordinal *int64          `json:"ordinal"`
	Payload json.RawMessage `json:"payload"`
}

// unsettled returns a rollout without the settings of its turns, and its last line. The program
// resumes a thread with the approval policy and the sandbox of its newest settings, which in our
// sandboxes are full access without asking. Without them, the machine's configuration applies,
// including its model.
func unsettled(data []byte, dir string) ([]byte, entry) {
	var out bytes.Buffer
	out.Grow(len(data))
	var last entry
	for line := range bytes.Lines(agent.WholeLines(data)) {
		var e entry
		_ = json.Unmarshal(line, &e) // lines of another form have none of these fields
		var event struct {
			Type string `json:"type"`
		}
		if e.Type == "event_msg" {
			_ = json.Unmarshal(e.Payload, &event)
		}
		if e.Type == "turn_context" || event.Type == "thread_settings_applied" {
			continue
		}
		if e.Type == "session_meta" {
			line = within(line, e.Payload, dir)
		}
		out.Write(line)
		last = e
	}
	return out.Bytes(), last
}

// within returns the line that begins a thread. If a directory of the thread is outside of dir, it
// replaces all of them by dir, because the thread may write to them.
func within(line, payload []byte, dir string) []byte {
	var p struct {
		Cwd   string   `json:"cwd"`
		Roots []string `json:"runtime_workspace_roots"`
	}
	_ = json.Unmarshal(payload, &p) // values of another form are replaced
	out := func(name string) bool { return name != dir && !strings.HasPrefix(filepath.Clean(name), dir+"/") }
	if !out(p.Cwd) && !slices.ContainsFunc(p.Roots, out) {
		return line
	}
	var fields, meta map[string]json.RawMessage
	if json.Unmarshal(line, &fields) != nil || json.Unmarshal(payload, &meta) != nil {
		return nil
	}
	meta["cwd"] = json.RawMessage(opening(dir) + `"`)
	meta["runtime_workspace_roots"] = json.RawMessage("[" + opening(dir) + `"]`)
	raw, err := json.Marshal(meta)
	if err == nil {
		fields["payload"] = raw
		raw, err = json.Marshal(fields)
	}
	if err != nil {
		return nil // decoded values can always be encoded
	}
	return append(raw, '\n')
}

// noted returns the line with a note for the model, which is appended to a rollout.
func noted(note string, last entry) []byte {
	if note == "" {
		return nil
	}
	line := map[string]any{
		"timestamp": time.Now().UTC().Format("2006-01-02T15:04:05.000Z"), "type": "response_item",
		"payload": map[string]any{"type": "message", "role": "developer", "content": []map[string]string{{"type": "input_text", "text": stdio.Reminder(note)}}},
	}
	if last.Ordinal != nil {
		line["ordinal"] = *last.Ordinal + 1
	}
	out, err := json.Marshal(line)
	if err != nil {
		return nil // strings can always be encoded
	}
	return append(out, '\n')
}

// Settings implements agent.Local.
func (local) Settings() []string {
	return []string{".codex/config.toml", ".codex/rules/**", ".codex/hooks.json", ".codex/hooks/**"}
}

// Resume implements agent.Local.
func (local) Resume(id string) []string { return []string{"codex", "resume", id} }

// settled lists the lines of a rollout that contain the directory and the provider of its thread.
// Messages are unchanged.
var settled = []string{`"type":"session_meta"`, `"type":"turn_context"`, `"type":"thread_settings_applied"`}

// elsewhere returns a rollout with the thread's directory and model provider replaced.
func elsewhere(data []byte, from, to, provider string) []byte {
	replace := strings.NewReplacer(opening(from)+`"`, opening(to)+`"`, opening(from)+"/", opening(to)+"/")
	var out bytes.Buffer
	out.Grow(len(data))
	for line := range bytes.Lines(data) {
		head := line[:min(len(line), 200)]
		if slices.ContainsFunc(settled, func(s string) bool { return bytes.Contains(head, []byte(s)) }) {
			line = []byte(namedProvider.ReplaceAllString(replace.Replace(string(line)), "${1}"+strings.ReplaceAll(opening(provider), "$", "$$")+`"`))
		}
		out.Write(line)
	}
	return out.Bytes()
}

// namedProvider matches the model provider of a thread.
var namedProvider = lazyregexp.New(`("model_provider(?:_id)?":)"[^"\\]*"`)

// opening returns s as a JSON string without the closing quote.
func opening(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) //nolint:errchkjson // a string can always be encoded
	return strings.TrimSuffix(b.String(), "\"\n")
}
