package opencodeformat

import (
	"slices"
)

// SettingsVariable passes the configuration of a launch to the bridge, which adds the parts that
// depend on secrets.
const SettingsVariable = "OVERWINTER_OPENCODE_SETTINGS"

// SecretConfig is the name of a secret with configuration in OpenCode's own format, for providers
// that need more than a key and an address. It overrides settings from other secrets.
const SecretConfig = "OPENCODE_CONFIG_CONTENT"

// SecretKeys are the names of secrets with providers' keys, which OpenCode itself reads.
var SecretKeys = []string{
	"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY",
	"XAI_API_KEY", "GROQ_API_KEY", "MISTRAL_API_KEY", "DEEPSEEK_API_KEY", SecretZen,
}

// SecretZen is the key of OpenCode's own provider. Without it that provider is disabled, because
// OpenCode would otherwise use it for part of the work and send data to third parties.
const SecretZen = "OPENCODE_API_KEY"

// Endpoints are the names of secrets with the addresses of providers' APIs.
var Endpoints = []struct {
	Secret, Provider, Version string
}{
	{"ANTHROPIC_BASE_URL", "anthropic", "/v1"},
	{"OPENAI_BASE_URL", "openai", ""},
	{"GOOGLE_GEMINI_BASE_URL", "google", "/v1beta"},
	{"OPENROUTER_BASE_URL", "openrouter", ""},
}

// Secrets returns the names of all secrets that the agent may use.
func Secrets() []string {
	names := slices.Clone(SecretKeys)
	for _, e := range Endpoints {
		names = append(names, e.Secret)
	}
	return append(names, SecretConfig)
}
