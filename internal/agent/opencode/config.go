package opencode

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// settingsVariable carries the configuration of a launch to the bridge, which adds what comes of
// secrets.
const settingsVariable = "OVERWINTER_OPENCODE_SETTINGS"

// SecretConfig is the name of a secret with configuration in OpenCode's own form, for providers that
// need more than a key and an address. It counts for more than what is made of other secrets.
const SecretConfig = "OPENCODE_CONFIG_CONTENT"

// secretKeys are the names of secrets with providers' keys, which OpenCode looks for by itself.
var secretKeys = []string{
	"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY",
	"XAI_API_KEY", "GROQ_API_KEY", "MISTRAL_API_KEY", "DEEPSEEK_API_KEY", secretZen,
}

// secretZen is the key of OpenCode's own provider. Without it that provider is left out: it would
// take part of the work by itself, and send it to strangers.
const secretZen = "OPENCODE_API_KEY"

// defaults are the models that are taken where none is chosen, by the key that is there: OpenCode's own
// choice is at times a model for images.
var defaults = []struct{ secret, model string }{
	{"ANTHROPIC_API_KEY", "anthropic/claude-sonnet-5"},
	{"OPENAI_API_KEY", "openai/gpt-6-sol"},
	{"GOOGLE_GENERATIVE_AI_API_KEY", "google/gemini-3.8-flash"},
	{"GEMINI_API_KEY", "google/gemini-3.8-flash"},
}

// endpoints are the names of secrets with the addresses of providers' APIs.
var endpoints = []struct {
	secret, provider, version string
}{
	{"ANTHROPIC_BASE_URL", "anthropic", "/v1"},
	{"OPENAI_BASE_URL", "openai", ""},
	{"GOOGLE_GEMINI_BASE_URL", "google", "/v1beta"},
	{"OPENROUTER_BASE_URL", "openrouter", ""},
}

// secrets are the names of all secrets that the agent may have.
func secrets() []string {
	names := slices.Clone(secretKeys)
	for _, e := range endpoints {
		names = append(names, e.secret)
	}
	return append(names, SecretConfig)
}

// settings are what OpenCode is configured with, in its own words.
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

// configuration is that of a launch, without what comes of secrets.
func configuration(in agent.LaunchInput, model string) settings {
	no := false
	s := settings{Model: model, Share: "disabled", AutoUpdate: &no, Permission: permissionRules(in.Permissions)}
	if in.Profile == nil {
		return s
	}
	for _, m := range in.Profile.MCPServers {
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

// harmless are the tools that read and plan, which run without asking unless it is said otherwise.
var harmless = []string{"read", "glob", "grep", "list", "todowrite", "todoread", "skill", "lsp", questionTool}

// permissionRules are the agent's own rules. Tools that it asks about under one name are asked about
// where they differ: the answer is then given by tool. The rule for everything comes first, because
// the last that fits counts; JSON has "*" in front of all letters.
func permissionRules(p session.Permissions) map[string]string {
	if p.Free() {
		return map[string]string{"*": string(session.PolicyAllow), questionTool: string(session.PolicyDeny)}
	}
	rules := map[string]string{"*": string(p.Of(""))}
	if p.Of("") == session.PolicyAsk {
		for _, tool := range harmless {
			rules[tool] = string(session.PolicyAllow)
		}
	}
	family := map[string][]session.Policy{}
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
				have = string(session.PolicyAsk)
			}
		}
		rules[name] = have
	}
	return rules
}

// withSecrets adds to a launch's configuration what comes of secrets in the environment, and returns
// it as OpenCode reads it.
func withSecrets(launch string, getenv func(string) string) ([]byte, error) {
	config := map[string]any{}
	if launch != "" {
		if err := json.Unmarshal([]byte(launch), &config); err != nil {
			return nil, err
		}
	}
	providers := map[string]any{}
	for _, e := range endpoints {
		url := strings.TrimRight(getenv(e.secret), "/")
		if url == "" {
			continue
		}
		if !strings.HasSuffix(url, e.version) {
			url += e.version
		}
		options := map[string]any{"baseURL": url}
		providers[e.provider] = map[string]any{"options": options}
	}
	merge(config, map[string]any{"provider": providers})
	if getenv(secretZen) == "" {
		config["disabled_providers"] = []any{"opencode"}
	}
	if config["model"] == nil {
		for _, d := range defaults {
			if getenv(d.secret) != "" {
				config["model"] = d.model
				break
			}
		}
	}
	if own := getenv(SecretConfig); own != "" {
		var more map[string]any
		if err := json.Unmarshal([]byte(own), &more); err != nil {
			return nil, errConfig
		}
		merge(config, more)
	}
	return json.Marshal(config)
}

// merge puts what is in from into to, the members of objects one by one.
func merge(to, from map[string]any) {
	for key, value := range from {
		have, ok := to[key].(map[string]any)
		more, too := value.(map[string]any)
		if ok && too {
			merge(have, more)
			continue
		}
		to[key] = value
	}
}
