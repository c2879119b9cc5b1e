package opencodebridge

import (
	"encoding/json"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent/opencode/opencodeformat"
)

// defaults are the models to use if none is chosen, by the available key. OpenCode's own choice is
// sometimes a model for images.
var defaults = []struct{ secret, model string }{
	{"ANTHROPIC_API_KEY", "anthropic/claude-sonnet-5"},
	{"OPENAI_API_KEY", "openai/gpt-6-sol"},
	{"GOOGLE_GENERATIVE_AI_API_KEY", "google/gemini-3.8-flash"},
	{"GEMINI_API_KEY", "google/gemini-3.8-flash"},
}

// withSecrets adds the settings that depend on secrets in the environment to a launch's
// configuration, and returns it in OpenCode's format.
func withSecrets(launch string, getenv func(string) string) ([]byte, error) {
	config := map[string]any{}
	if launch != "" {
		if err := json.Unmarshal([]byte(launch), &config); err != nil {
			return nil, err
		}
	}
	providers := map[string]any{}
	for _, e := range opencodeformat.Endpoints {
		url := strings.TrimRight(getenv(e.Secret), "/")
		if url == "" {
			continue
		}
		if !strings.HasSuffix(url, e.Version) {
			url += e.Version
		}
		options := map[string]any{"baseURL": url}
		providers[e.Provider] = map[string]any{"options": options}
	}
	merge(config, map[string]any{"provider": providers})
	if getenv(opencodeformat.SecretZen) == "" {
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
	if own := getenv(opencodeformat.SecretConfig); own != "" {
		var more map[string]any
		if err := json.Unmarshal([]byte(own), &more); err != nil {
			return nil, errConfig
		}
		merge(config, more)
	}
	return json.Marshal(config)
}

// merge merges from into to, object by object.
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
