package gemini

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
	"github.com/overwinter-dev/overwinter/internal/agenttool"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// settingsOf returns the settings for the program. They override those of the user and the
// workspace.
func settingsOf(in agent.LaunchInput) map[string]any {
	type object = map[string]any
	tools := object{}
	if list := denied(in.Permissions); len(list) > 0 {
		tools["exclude"] = list
	}
	servers := object{}
	for _, s := range in.MCPServers() {
		servers[s.Name] = mcpServer(s)
	}
	if len(in.Tools) > 0 {
		servers[agenttool.Server].(object)["trust"] = true // its tools need no permission
	}
	return object{
		"security": object{"auth": object{"selectedType": "gemini-api-key"}, "folderTrust": object{"enabled": false}},
		"general": object{
			"enableAutoUpdate": false, "enableAutoUpdateNotification": false,
			// The notebook stores the chat, and that of a resumed session looks old.
			"sessionRetention": object{"enabled": false},
		},
		"privacy":    object{"usageStatisticsEnabled": false},
		"telemetry":  object{"enabled": false},
		"tools":      tools,
		"mcpServers": servers,
	}
}

// mcpServer returns a server in the format of the program's settings.
func mcpServer(s profile.MCPServer) map[string]any {
	m := map[string]any{}
	if s.Command != "" {
		m["command"] = s.Command
		if len(s.Args) > 0 {
			m["args"] = s.Args
		}
		if len(s.Environment) > 0 {
			m["env"] = s.Environment
		}
		return m
	}
	m["httpUrl"] = s.URL
	if len(s.Headers) > 0 {
		m["headers"] = s.Headers
	}
	return m
}

// ProfileFiles returns the files that the program reads from its user's directory. MCP servers are
// in the settings that Launch generates.
func (Adapter) ProfileFiles(in agent.LaunchInput) ([]transcript.File, error) {
	if in.Profile == nil {
		return nil, nil
	}
	dir := path.Join(in.Home, ".gemini")
	var files []transcript.File
	add := func(name, content string) {
		files = append(files, transcript.File{Path: path.Join(dir, name), Data: []byte(content)})
	}
	p := in.Profile
	if p.Instructions != "" {
		add("GEMINI.md", p.Instructions+"\n")
	}
	for _, s := range p.Skills {
		add(path.Join("skills", s.Name, "SKILL.md"), withFrontMatter(s))
	}
	for _, s := range p.Subagents {
		add(path.Join("agents", s.Name+".md"), withFrontMatter(s))
	}
	for _, c := range p.Commands {
		text, err := commandFile(c)
		if err != nil {
			return nil, err
		}
		add(path.Join(geminiformat.CommandDir, c.Name+".toml"), text)
	}
	return files, nil
}

// withFrontMatter returns a skill or a subagent in the program's format. The program rejects one
// without a description.
func withFrontMatter(t profile.Text) string {
	description := t.Description
	if description == "" {
		description = t.Name
	}
	return fmt.Sprintf("---\nname: %s\ndescription: %s\n---\n\n%s\n", t.Name, geminiformat.Quoted(description), t.Content)
}

// commandFile returns a command in the program's format. A JSON string is also a valid TOML string.
func commandFile(c profile.Text) (string, error) {
	var b strings.Builder
	if c.Description != "" {
		fmt.Fprintf(&b, "description = %s\n", geminiformat.Quoted(c.Description))
	}
	prompt, err := json.Marshal(c.Content)
	if err != nil {
		return "", fmt.Errorf("command %s: %w", c.Name, err)
	}
	fmt.Fprintf(&b, "%s%s\n", geminiformat.PromptKey, prompt)
	return b.String(), nil
}
