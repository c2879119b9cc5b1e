package codex

import (
	"bytes"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/codex/codexformat"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// ProfileFiles returns the files of a profile in the form that Codex reads, all below its own
// directory.
func (Adapter) ProfileFiles(in agent.LaunchInput) ([]transcript.File, error) {
	if in.Profile == nil {
		return nil, nil
	}
	var files []transcript.File
	add := func(name string, text string) {
		files = append(files, transcript.File{Path: path.Join(in.Home, codexHome, name), Data: []byte(text)})
	}
	if in.Profile.Instructions != "" {
		add("AGENTS.md", in.Profile.Instructions)
	}
	for _, s := range in.Profile.Skills {
		add(path.Join("skills", s.Name, "SKILL.md"), "---\nname: "+yaml(s.Name)+"\ndescription: "+yaml(s.Description)+"\n---\n\n"+s.Content)
	}
	for _, s := range in.Profile.Subagents {
		add(path.Join("agents", s.Name+".toml"), "name = "+toml(s.Name)+"\ndescription = "+toml(s.Description)+
			"\ndeveloper_instructions = "+toml(s.Content)+"\n")
	}
	for _, c := range in.Profile.Commands {
		add(path.Join(codexformat.PromptDir, c.Name+".md"), c.Content)
	}
	if len(in.Profile.MCPServers) > 0 {
		add("config.toml", servers(in.Profile.MCPServers))
	}
	return files, nil
}

// servers returns the part of the configuration that lists MCP servers.
func servers(list []profile.MCPServer) string {
	var b strings.Builder
	table := func(name, key string, values map[string]string) {
		if len(values) == 0 {
			return
		}
		b.WriteString("[mcp_servers." + toml(name) + "." + key + "]\n")
		keys := make([]string, 0, len(values))
		for k := range values {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			b.WriteString(toml(k) + " = " + toml(values[k]) + "\n")
		}
	}
	for _, s := range list {
		b.WriteString("[mcp_servers." + toml(s.Name) + "]\n")
		if s.Command != "" {
			args := make([]string, len(s.Args))
			for i, a := range s.Args {
				args[i] = toml(a)
			}
			b.WriteString("command = " + toml(s.Command) + "\nargs = [" + strings.Join(args, ", ") + "]\n")
			table(s.Name, "env", s.Environment)
		} else {
			b.WriteString("url = " + toml(s.URL) + "\n")
			table(s.Name, "http_headers", s.Headers)
		}
	}
	return b.String()
}

// toml quotes a string.
func toml(s string) string {
	var b bytes.Buffer
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r < 0x20 || r == 0x7f:
			b.WriteString(`\u` + strings.Repeat("0", 4-len(strconv.FormatInt(int64(r), 16))) + strconv.FormatInt(int64(r), 16))
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// yaml quotes a string. A quoted TOML string is also a valid YAML string.
func yaml(s string) string { return toml(s) }
