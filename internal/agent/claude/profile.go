package claude

import (
	"encoding/json"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agenttool"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

var _ agent.Profiled = Adapter{}

// ProfileFiles returns the files of a profile at the paths where the program looks for its user's
// files, so that none of them is in the workspace. MCP servers have a separate file, which a flag
// names.
func (Adapter) ProfileFiles(in agent.LaunchInput) ([]transcript.File, error) {
	p := in.Profile
	if p == nil {
		return nil, nil
	}
	var files []transcript.File
	add := func(name, content string) {
		files = append(files, transcript.File{Path: path.Join(in.Home, ".claude", name), Data: []byte(content)})
	}
	if p.Instructions != "" {
		add("CLAUDE.md", p.Instructions)
	}
	for _, s := range p.Skills {
		add(path.Join("skills", s.Name, "SKILL.md"), withFrontMatter(s, true))
	}
	for _, s := range p.Subagents {
		add(path.Join("agents", s.Name+".md"), withFrontMatter(s, true))
	}
	for _, s := range p.Commands {
		add(path.Join("commands", s.Name+".md"), withFrontMatter(s, false))
	}
	if len(p.MCPServers) > 0 {
		config, err := mcpConfig(p.MCPServers)
		if err != nil {
			return nil, err
		}
		files = append(files, transcript.File{Path: mcpConfigPath(in.Home), Data: config})
	}
	return files, nil
}

func mcpConfigPath(home string) string { return path.Join(home, ".claude", "overwinter-mcp.json") }

// withFrontMatter puts a description, and optionally a name, above a text.
func withFrontMatter(t profile.Text, named bool) string {
	var b strings.Builder
	b.WriteString("---\n")
	if named {
		fmt.Fprintf(&b, "name: %s\n", t.Name)
	}
	description := t.Description
	if description == "" {
		description = t.Name
	}
	fmt.Fprintf(&b, "description: %s\n---\n\n%s\n", strconv.Quote(description), t.Content)
	return b.String()
}

// mcpServer is a server in the program's configuration format.
type mcpServer struct {
	Type    string            `json:"type"`
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// mcpFlags returns the flags that name the servers: those of the profile by their file, and that of
// overwinter's tools inline.
func mcpFlags(in agent.LaunchInput) ([]string, error) {
	var configs []string
	if in.Profile != nil && len(in.Profile.MCPServers) > 0 {
		configs = append(configs, mcpConfigPath(in.Home))
	}
	if len(in.Tools) > 0 {
		own, err := mcpConfig([]profile.MCPServer{{Name: agenttool.Server, Command: in.Tools[0], Args: in.Tools[1:]}})
		if err != nil {
			return nil, err
		}
		configs = append(configs, string(own))
	}
	if len(configs) == 0 {
		return nil, nil
	}
	return append([]string{"--mcp-config"}, configs...), nil
}

func mcpConfig(servers []profile.MCPServer) ([]byte, error) {
	out := map[string]mcpServer{}
	for _, s := range servers {
		kind := "stdio"
		if s.URL != "" {
			kind = "http"
		}
		out[s.Name] = mcpServer{Type: kind, Command: s.Command, Args: s.Args, Env: s.Environment, URL: s.URL, Headers: s.Headers}
	}
	return json.Marshal(map[string]any{"mcpServers": out})
}
