package claude

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/google/uuid"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

var _ agent.Movable = Adapter{}

// Local are the sessions of Claude Code: below its projects, in a folder that is named after the directory. The same files make the
// same session in a sandbox, in another folder.
func (Adapter) Local(m agent.Machine) agent.Local { return local{m} }

type local struct{ agent.Machine }

// root is the folder of a directory.
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

// Unpack implements agent.Local. The folder of the directory has no session of that id unless it was pulled there before.
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
		remembers = remembers || below == id+suffix
		files = append(files, transcript.File{Path: filepath.Join(l.root(dir), filepath.FromSlash(below)), Data: f.Data})
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

// Resume implements agent.Local.
func (local) Resume(id string) []string { return []string{"claude", "--resume", id} }

// memoryID is the session under whose name the adapter finds the files of a session of Claude Code.
func memoryID(id string) (string, error) {
	parsed, err := uuid.Parse(id)
	if err != nil || parsed.String() != id {
		return "", fmt.Errorf("%q is not the id of a session of Claude Code", id)
	}
	return session.SessionPrefix + strings.ReplaceAll(id, "-", ""), nil
}

// maxProject is how many characters of a directory's name are in that of its folder; after those follows a hash.
const maxProject = 200

// projectOf is the name of the folder of a directory, as the program makes it: what is no letter or digit is a dash.
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
