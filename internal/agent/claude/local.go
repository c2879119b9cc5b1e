package claude

import (
	"fmt"
	"path"
	"strings"

	"github.com/google/uuid"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/session"
)

var _ agent.Movable = Adapter{}

// Local says where Claude Code keeps the sessions of a directory: below its projects, in a folder that is named after the directory.
func (Adapter) Local(p agent.Place) agent.Local {
	root := path.Join(p.Home, ".claude/projects", projectOf(p.Workspace))
	return agent.Local{
		Sessions: path.Join(root, "*.jsonl"),
		Root:     root,
		Files: func(id string) []string {
			return []string{path.Join(root, id+".jsonl"), path.Join(root, id, subagentDir, "*.jsonl"), path.Join(root, id, subagentDir, "*"+metaSuffix)}
		},
		MemoryID: func(id string) (string, error) {
			parsed, err := uuid.Parse(id)
			if err != nil || parsed.String() != id {
				return "", fmt.Errorf("%q is not the id of a session of Claude Code", id)
			}
			return session.SessionPrefix + strings.ReplaceAll(id, "-", ""), nil
		},
		LocalID: sessionUUID,
		Resume:  func(id string) []string { return []string{"claude", "--resume", id} },
	}
}

// projectOf is the name of the folder of a directory: what is no letter or digit is a dash.
func projectOf(dir string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, dir)
}
