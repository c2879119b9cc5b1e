package opencode

import (
	"maps"
	"slices"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agenttool"
	"github.com/overwinter-dev/overwinter/internal/permission"
)

// settings is OpenCode's configuration, in its own format.
type settings struct {
	Model             string               `json:"model,omitempty"`
	Share             string               `json:"share,omitempty"`
	AutoUpdate        *bool                `json:"autoupdate,omitempty"`
	Permission        map[string]string    `json:"permission,omitempty"`
	MCP               map[string]mcpServer `json:"mcp,omitempty"`
	DisabledProviders []string             `json:"disabled_providers,omitempty"`
	Provider          map[string]provider  `json:"provider,omitempty"`
}

type provider struct {
	Options map[string]string `json:"options"`
}

type mcpServer struct {
	Type        string            `json:"type"` // local or remote
	Command     []string          `json:"command,omitempty"`
	Environment map[string]string `json:"environment,omitempty"`
	URL         string            `json:"url,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Enabled     bool              `json:"enabled"`
}

// configuration returns the configuration of a launch, without the parts that depend on secrets.
func configuration(in agent.LaunchInput, model string) settings {
	no := false
	s := settings{Model: model, Share: "disabled", AutoUpdate: &no, Permission: permissionRules(in.Permissions)}
	if len(in.Tools) > 0 {
		// Rules for single tools sort later by name, and take precedence.
		s.Permission[agenttool.Server+"_*"] = string(permission.Allow)
	}
	for _, m := range in.MCPServers() {
		if s.MCP == nil {
			s.MCP = map[string]mcpServer{}
		}
		server := mcpServer{Type: "remote", URL: m.URL, Headers: m.Headers, Enabled: true}
		if m.Command != "" {
			server = mcpServer{
				Type: "local", Command: append([]string{m.Command}, m.Args...), Environment: m.Environment, Enabled: true,
			}
		}
		s.MCP[m.Name] = server
	}
	return s
}

// harmless lists the tools that read and plan, which run without asking by default.
var harmless = []string{"read", "glob", "grep", "list", "todowrite", "todoread", "skill", "lsp", questionTool}

// permissionRules returns the rules in the agent's own format. If tools that the agent asks about
// under one name have different policies, the agent asks, and each question is answered by the
// policy of its tool. The last matching rule applies, so the rule for everything must come first;
// in JSON, "*" sorts before all letters.
func permissionRules(p permission.Rules) map[string]string {
	if p.Free() {
		return map[string]string{"*": string(permission.Allow), questionTool: string(permission.Deny)}
	}
	rules := map[string]string{"*": string(p.Of(""))}
	if p.Of("") == permission.Ask {
		for _, tool := range harmless {
			rules[tool] = string(permission.Allow)
		}
	}
	family := map[string][]permission.Policy{}
	for _, tool := range slices.Sorted(maps.Keys(p.Tools)) {
		if tool == "" || tool == "*" {
			continue
		}
		if name, ok := families[tool]; ok {
			family[name] = append(family[name], p.Tools[tool])
			continue
		}
		rules[tool] = string(p.Tools[tool])
	}
	for name, policies := range family {
		have, ok := rules[name]
		if !ok {
			have = rules["*"]
		}
		for _, policy := range policies {
			if string(policy) != have {
				have = string(permission.Ask)
			}
		}
		rules[name] = have
	}
	return rules
}
