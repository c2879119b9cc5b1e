package opencode

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

var _ agent.Profiled = Adapter{}

// ProfileFiles returns the files of a profile at the paths where OpenCode looks for its user's
// files, so that none of them is in the workspace. Servers, the model and permissions are in the
// configuration that Launch generates.
func (Adapter) ProfileFiles(in agent.LaunchInput) ([]transcript.File, error) {
	p := in.Profile
	if p == nil {
		return nil, nil
	}
	var files []transcript.File
	add := func(name, content string) {
		files = append(files, transcript.File{
			Path: path.Join(in.Home, ".config/opencode", name), Data: []byte(content),
		})
	}
	if p.Instructions != "" {
		add("AGENTS.md", p.Instructions+"\n")
	}
	for _, s := range p.Skills {
		add(path.Join("skills", s.Name, "SKILL.md"), withFrontMatter(s, "name: "+s.Name))
	}
	for _, s := range p.Subagents {
		add(path.Join("agents", s.Name+".md"), withFrontMatter(s, "mode: subagent"))
	}
	for _, s := range p.Commands {
		add(path.Join("commands", s.Name+".md"), withFrontMatter(s))
	}
	return files, nil
}

// withFrontMatter puts a description, and further fields, above a text.
func withFrontMatter(t profile.Text, more ...string) string {
	description := t.Description
	if description == "" {
		description = t.Name
	}
	head := append([]string{"description: " + strconv.Quote(description)}, more...)
	return fmt.Sprintf("---\n%s\n---\n\n%s\n", strings.Join(head, "\n"), t.Content)
}
