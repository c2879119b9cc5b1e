package geminibridge

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
)

// Location of a chat that the program is to load, below its own directory. The name of the
// directory is the slug of the only project that it is configured with.
const (
	slug        = "overwinter"
	restoredDay = "2020-01-01T00-00" // older than any file that the program creates
)

// restore replaces the chats in the program's directory dir by the chat of one session in a
// project. It returns the file, to which the program appends. It first deletes everything else,
// because the program would delete the file if it found another one of the same session.
func restore(m *geminiformat.Memory, dir, project, id string) (string, error) {
	root := filepath.Join(dir, "tmp", slug)
	if err := os.RemoveAll(filepath.Join(root, "chats")); err != nil {
		return "", fmt.Errorf("restore the chat: %w", err)
	}
	chats := filepath.Join(root, "chats")
	if err := os.MkdirAll(chats, 0o700); err != nil {
		return "", fmt.Errorf("restore the chat: %w", err)
	}
	projects, err := json.Marshal(map[string]any{"projects": map[string]string{project: slug}})
	if err != nil {
		return "", fmt.Errorf("restore the chat: %w", err)
	}
	for name, content := range map[string][]byte{
		filepath.Join(dir, "projects.json"):  projects,
		filepath.Join(root, ".project_root"): []byte(project),
	} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return "", fmt.Errorf("restore the chat: %w", err)
		}
	}
	if id == "" {
		return "", nil
	}
	name := filepath.Join(chats, "session-"+restoredDay+"-"+geminiformat.Short(id)+".jsonl")
	if err := os.WriteFile(name, m.Chat(project, id), 0o600); err != nil {
		return "", fmt.Errorf("restore the chat: %w", err)
	}
	return name, nil
}
