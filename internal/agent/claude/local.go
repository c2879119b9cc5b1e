package claude

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/google/uuid"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

var _ agent.Movable = Adapter{}

// Local returns access to the sessions of Claude Code on a machine. They are below its projects
// directory, in a folder named after the working directory. In a sandbox, the same files in another
// folder are the same session.
func (Adapter) Local(m agent.Machine) agent.Local { return local{m} }

type local struct{ agent.Machine }

// root returns the folder of a directory.
func (l local) root(dir string) string {
	return filepath.Join(cmp.Or(l.Getenv("CLAUDE_CONFIG_DIR"), filepath.Join(l.Home, ".claude")), "projects", projectOf(dir))
}

func (l local) inside() string {
	return path.Join(l.Sandbox.Home, ".claude/projects", projectOf(l.Sandbox.Workspace))
}

// Where implements agent.Local.
func (l local) Where(dir string) string { return filepath.Join(l.root(dir), "*"+suffix) }

const suffix = ".jsonl"

// List implements agent.Local.
func (l local) List(_ context.Context, dir string) ([]agent.LocalSession, error) {
	names, err := filepath.Glob(filepath.Join(l.root(dir), "*"+suffix))
	if err != nil {
		return nil, err
	}
	var list []agent.LocalSession
	for _, name := range names {
		id := strings.TrimSuffix(filepath.Base(name), suffix)
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		if _, err := memoryID(id); err == nil {
			list = append(list, agent.LocalSession{ID: id, At: info.ModTime()})
		}
	}
	slices.SortFunc(list, func(a, b agent.LocalSession) int { return b.At.Compare(a.At) })
	return list, nil
}

// Pack implements agent.Local.
func (l local) Pack(_ context.Context, dir, id string) (agent.Moved, error) {
	memory, err := memoryID(id)
	if err != nil {
		return agent.Moved{}, err
	}
	root := l.root(dir)
	names := []string{filepath.Join(root, id+suffix)}
	for _, pattern := range []string{"*" + suffix, "*" + metaSuffix} {
		more, err := filepath.Glob(filepath.Join(root, id, subagentDir, pattern))
		if err != nil {
			return agent.Moved{}, err
		}
		names = append(names, more...)
	}
	files, err := agent.ReadLocal(names)
	if err != nil {
		return agent.Moved{}, err
	}
	for i, f := range files {
		files[i].Path = l.inside() + filepath.ToSlash(strings.TrimPrefix(f.Path, root))
		if strings.HasSuffix(f.Path, suffix) {
			files[i].Data = agent.WholeLines(f.Data)
		}
	}
	return agent.Moved{MemoryID: memory, Files: files}, nil
}

// Unpack implements agent.Local. The folder of the directory contains a session with that id only
// if it was pulled there before.
func (l local) Unpack(_ context.Context, dir string, m agent.Moved) (string, error) {
	id, err := sessionUUID(m.MemoryID)
	if err != nil {
		return "", err
	}
	var files []transcript.File
	remembers := false
	for _, f := range m.Files {
		below, ok := strings.CutPrefix(f.Path, l.inside()+"/")
		if !ok || !belongs(below, id) {
			continue
		}
		data := f.Data
		if strings.HasSuffix(below, suffix) {
			var leaf entry
			data, leaf = unpermitted(data)
			if below == id+suffix {
				remembers = true
				data = append(data, noted(m.Note, leaf, id, dir)...)
			}
		}
		files = append(files, transcript.File{Path: filepath.Join(l.root(dir), filepath.FromSlash(below)), Data: data})
	}
	if !remembers {
		return "", agent.ErrNoMemory
	}
	return id, agent.WriteLocal(files)
}

// belongs reports whether a path below the folder of a directory is a file of a session.
func belongs(below, id string) bool {
	if below == id+suffix {
		return true
	}
	name, ok := strings.CutPrefix(below, path.Join(id, subagentDir)+"/")
	return ok && fs.ValidPath(name) && !strings.Contains(name, "/") && (strings.HasSuffix(name, suffix) || strings.HasSuffix(name, metaSuffix))
}

// entry contains the fields of a transcript line that a move needs.
type entry struct {
	Type       string `json:"type"`
	UUID       string `json:"uuid"`
	Sidechain  bool   `json:"isSidechain"`
	Version    string `json:"version"`
	Permission string `json:"permissionMode"`
}

// strict lists the permission modes in which the program asks a person before it acts, or does not
// act.
var strict = []string{"", "default", "plan"}

// unpermitted returns a transcript without the permission modes of the sandbox, in which the
// program would otherwise resume, and the line that the next line follows.
func unpermitted(data []byte) ([]byte, entry) {
	var out bytes.Buffer
	out.Grow(len(data))
	var leaf entry
	for line := range bytes.Lines(agent.WholeLines(data)) {
		var e entry
		_ = json.Unmarshal(line, &e) // lines of another form have none of these fields
		if e.Type == "permission-mode" {
			continue
		}
		if e.UUID != "" && !e.Sidechain {
			leaf = e
		}
		if !slices.Contains(strict, e.Permission) {
			line = withDefaultMode(line)
		}
		out.Write(line)
	}
	return out.Bytes(), leaf
}

func withDefaultMode(line []byte) []byte {
	var fields map[string]json.RawMessage
	if json.Unmarshal(line, &fields) != nil {
		return nil
	}
	for key := range fields {
		if strings.EqualFold(key, "permissionMode") {
			fields[key] = json.RawMessage(`"default"`)
		}
	}
	out, err := json.Marshal(fields)
	if err != nil {
		return nil // decoded values can always be encoded
	}
	return append(out, '\n')
}

// noted returns the line that contains a note for the model, which the program does not show.
func noted(note string, leaf entry, id, dir string) []byte {
	if note == "" || leaf.UUID == "" {
		return nil
	}
	line, err := json.Marshal(map[string]any{
		"parentUuid": leaf.UUID, "isSidechain": false, "type": "user", "isMeta": true, "uuid": uuid.NewString(),
		"message":   map[string]string{"role": "user", "content": stdio.Reminder(note)},
		"timestamp": time.Now().UTC().Format("2006-01-02T15:04:05.000Z"),
		"userType":  "external", "cwd": dir, "sessionId": id, "version": leaf.Version,
	})
	if err != nil {
		return nil // strings can always be encoded
	}
	return append(line, '\n')
}

// Settings implements agent.Local.
func (local) Settings() []string {
	return []string{".claude/settings.json", ".claude/settings.local.json", ".mcp.json"}
}

// Resume implements agent.Local.
func (local) Resume(id string) []string { return []string{"claude", "--resume", id} }

// memoryID returns the session id under which the adapter finds the files of a Claude Code session.
func memoryID(id string) (string, error) {
	parsed, err := uuid.Parse(id)
	if err != nil || parsed.String() != id {
		return "", fmt.Errorf("%q is not the id of a session of Claude Code", id)
	}
	return session.SessionPrefix + strings.ReplaceAll(id, "-", ""), nil
}

// maxProject is how many characters of a directory's name the name of its folder contains before a
// hash follows.
const maxProject = 200

// projectOf returns the name that the program gives to the folder of a directory: every character
// except letters and digits becomes a dash.
func projectOf(dir string) string {
	units := utf16.Encode([]rune(dir))
	name := make([]byte, len(units))
	var hash int32
	for i, u := range units {
		hash = hash<<5 - hash + int32(u)
		name[i] = '-'
		if u >= 'a' && u <= 'z' || u >= 'A' && u <= 'Z' || u >= '0' && u <= '9' {
			name[i] = byte(u)
		}
	}
	if len(name) <= maxProject {
		return string(name)
	}
	return string(name[:maxProject]) + "-" + strconv.FormatInt(max(int64(hash), -int64(hash)), 36)
}
