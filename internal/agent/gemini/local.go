package gemini

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/lazyregexp"
	"github.com/overwinter-dev/overwinter/internal/runner/regular"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

var _ agent.Movable = Adapter{}

// Local returns access to the sessions of Gemini CLI on a machine: chat files in a folder whose
// file .project_root names the directory. In a sandbox the memory of a session is the bridge's
// notebook, so chats are converted to notebooks and back.
func (Adapter) Local(m agent.Machine) agent.Local {
	return local{m, filepath.Join(cmp.Or(m.Getenv("GEMINI_CLI_HOME"), m.Home), ".gemini")}
}

type local struct {
	agent.Machine
	home string
}

const (
	projectRoot = ".project_root"
	chatPattern = "chats/session-*.jsonl"
)

// Where implements agent.Local.
func (l local) Where(dir string) string {
	return filepath.Join(l.home, "tmp", "*", chatPattern) + " next to a " + projectRoot + " with " + dir
}

// maxRoot bounds the name of a directory.
const maxRoot = 64 << 10

// folders returns the folders of a directory.
func (l local) folders(dir string) ([]string, error) {
	markers, err := filepath.Glob(filepath.Join(l.home, "tmp", "*", projectRoot))
	if err != nil {
		return nil, err
	}
	var found []string
	for _, name := range markers {
		if root, err := regular.Read(name, maxRoot); err == nil && strings.TrimSpace(string(root)) == dir {
			found = append(found, filepath.Dir(name))
		}
	}
	return found, nil
}

// localChat is a session and its file.
type localChat struct {
	agent.LocalSession
	name string
}

// all returns the sessions of a directory that contain messages, newest first.
func (l local) all(dir string) ([]localChat, error) {
	folders, err := l.folders(dir)
	if err != nil {
		return nil, err
	}
	var list []localChat
	for _, folder := range folders {
		names, err := filepath.Glob(filepath.Join(folder, chatPattern))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			data, err := regular.Read(name, transcript.MaxRevertBytes)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, regular.ErrNotRegular) || errors.Is(err, regular.ErrTooLarge) {
				continue
			}
			if err != nil {
				return nil, err
			}
			info, err := os.Stat(name)
			if err != nil {
				return nil, err
			}
			if id, m := geminiformat.ReadChat(agent.WholeLines(data)); len(m.Messages) > 0 {
				list = append(list, localChat{agent.LocalSession{ID: id, At: info.ModTime()}, name})
			}
		}
	}
	slices.SortFunc(list, func(a, b localChat) int { return b.At.Compare(a.At) })
	return list, nil
}

// List implements agent.Local.
func (l local) List(_ context.Context, dir string) ([]agent.LocalSession, error) {
	all, err := l.all(dir)
	list := make([]agent.LocalSession, len(all))
	for i, c := range all {
		list[i] = c.LocalSession
	}
	return list, err
}

// Pack implements agent.Local.
func (l local) Pack(_ context.Context, dir, id string) (agent.Moved, error) {
	all, err := l.all(dir)
	if err != nil {
		return agent.Moved{}, err
	}
	i := slices.IndexFunc(all, func(c localChat) bool { return c.ID == id })
	parsed, err := uuid.Parse(id)
	if i < 0 || err != nil || parsed.String() != id {
		return agent.Moved{}, fmt.Errorf("%q is not the id of a session of Gemini CLI in %s", id, dir)
	}
	subagents, err := filepath.Glob(filepath.Join(filepath.Dir(all[i].name), id, "*.jsonl"))
	if err != nil {
		return agent.Moved{}, err
	}
	files, err := agent.ReadLocal(append([]string{all[i].name}, subagents...))
	if err != nil {
		return agent.Moved{}, err
	}
	_, m := geminiformat.ReadChat(agent.WholeLines(files[0].Data))
	notes := m.Notes(id)
	for _, f := range files[1:] {
		subagent := strings.TrimSuffix(filepath.Base(f.Path), ".jsonl")
		_, chat := geminiformat.ReadChat(agent.WholeLines(f.Data))
		for _, n := range chat.Notes(id)[1:] {
			n.ID = subagent
			notes = append(notes, n)
		}
	}
	memory := session.SessionPrefix + strings.ReplaceAll(id, "-", "")
	notebook, err := linesOf(notes)
	return agent.Moved{MemoryID: memory, Files: []transcript.File{{Path: geminiformat.NotebookPath(l.Sandbox.Home, memory), Data: notebook}}}, err
}

func linesOf(notes []stdio.Note) ([]byte, error) {
	var out bytes.Buffer
	for _, n := range notes {
		line, err := n.Encode()
		if err != nil {
			return nil, err
		}
		out.Write(append(line, '\n'))
	}
	return out.Bytes(), nil
}

// subagentName matches the id of a subagent that is the name of a file.
var subagentName = lazyregexp.New(`^[A-Za-z0-9_-]{1,128}$`)

// Unpack implements agent.Local.
func (l local) Unpack(_ context.Context, dir string, moved agent.Moved) (string, error) {
	i := slices.IndexFunc(moved.Files, func(f transcript.File) bool {
		return f.Path == geminiformat.NotebookPath(l.Sandbox.Home, moved.MemoryID)
	})
	if i < 0 {
		return "", agent.ErrNoMemory
	}
	id, m := geminiformat.ReadNotebook(moved.Files[i].Data)
	parsed, err := uuid.Parse(id)
	if err != nil || parsed.String() != id || len(m.Messages) == 0 {
		return "", agent.ErrNoMemory
	}
	folder, err := l.folder(dir)
	if err != nil {
		return "", err
	}
	taken, err := filepath.Glob(filepath.Join(folder, "chats", "session-*-"+geminiformat.Short(id)+".jsonl"))
	if err != nil {
		return "", err
	}
	if len(taken) > 0 {
		return "", fmt.Errorf("%s exists already; pull into another directory", taken[0])
	}
	if moved.Note != "" {
		m.Remind(uuid.NewString(), moved.Note)
	}
	name := "session-" + time.Now().UTC().Format("2006-01-02T15-04") + "-" + geminiformat.Short(id) + ".jsonl"
	files := []transcript.File{{Path: filepath.Join(folder, "chats", name), Data: m.Chat(dir, id)}}
	for subagent, lines := range subagentsOf(moved.Files[i].Data) {
		if subagentName.MatchString(subagent) {
			head := geminiformat.Data(map[string]any{"sessionId": subagent, "kind": "subagent", "startTime": time.Now().UTC()})
			files = append(files, transcript.File{Path: filepath.Join(folder, "chats", id, subagent+".jsonl"), Data: append(append(head, '\n'), lines...)})
		}
	}
	return id, agent.WriteLocal(files)
}

// subagentsOf returns the lines of a notebook that belong to the chats of subagents.
func subagentsOf(notebook []byte) map[string][]byte {
	chats := map[string][]byte{}
	for line := range bytes.Lines(notebook) {
		if n, ok := stdio.ParseNote(line); ok && n.Type == geminiformat.NoteChat && n.ID != "" {
			chats[n.ID] = append(append(chats[n.ID], bytes.TrimSpace(n.Data)...), '\n')
		}
	}
	return chats
}

// maxFolders bounds the search for the name of a folder.
const maxFolders = 10_000

// folder returns the folder of a directory and creates it if necessary. The program finds the
// folder by a file in it.
func (l local) folder(dir string) (string, error) {
	have, err := l.folders(dir)
	if err != nil {
		return "", err
	}
	if len(have) > 0 {
		return have[0], nil
	}
	used := map[string]bool{}
	var known struct {
		Projects map[string]string `json:"projects"`
	}
	if data, err := regular.Read(filepath.Join(l.home, "projects.json"), transcript.MaxRevertBytes); err == nil && json.Unmarshal(data, &known) == nil {
		for _, name := range known.Projects {
			used[name] = true
		}
	}
	slug := folderName(filepath.Base(dir))
	for n := range maxFolders {
		name := slug
		if n > 0 {
			name += "-" + strconv.Itoa(n)
		}
		if _, err := os.Lstat(filepath.Join(l.home, "history", name)); used[name] || !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		folder := filepath.Join(l.home, "tmp", name)
		if err := os.MkdirAll(filepath.Dir(folder), 0o700); err != nil {
			return "", err
		}
		err := os.Mkdir(folder, 0o700)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		return folder, os.WriteFile(filepath.Join(folder, projectRoot), []byte(dir), 0o600)
	}
	return "", fmt.Errorf("%s has no free name for %s", filepath.Join(l.home, "tmp"), dir)
}

// folderName returns the name that the program gives to the folder of a directory.
func folderName(base string) string {
	words := strings.FieldsFunc(strings.ToLower(base), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	return cmp.Or(strings.Join(words, "-"), "project")
}

// Settings implements agent.Local.
func (local) Settings() []string {
	return []string{".gemini/settings.json", ".gemini/policies/**", ".gemini/extensions/**", ".gemini/hooks/**", ".gemini/.env"}
}

// Resume implements agent.Local.
func (local) Resume(id string) []string { return []string{"gemini", "--resume", id} }
