package opencodeformat

import (
	"slices"
)

// SettingsVariable carries the configuration of a launch to the bridge, which adds what comes of
// secrets.
const SettingsVariable = "OVERWINTER_OPENCODE_SETTINGS"

// SecretConfig is the name of a secret with configuration in OpenCode's own form, for providers that
// need more than a key and an address. It counts for more than what is made of other secrets.
const SecretConfig = "OPENCODE_CONFIG_CONTENT"

// SecretKeys are the names of secrets with providers' keys, which OpenCode looks for by itself.
var SecretKeys = []string{
	"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY",
	"XAI_API_KEY", "GROQ_API_KEY", "MISTRAL_API_KEY", "DEEPSEEK_API_KEY", SecretZen,
}

// SecretZen is the key of OpenCode's own provider. Without it that provider is left out: it would
// take part of the work by itself, and send it to strangers.
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

// Secrets are the names of all secrets that the agent may have.
func Secrets() []string {
	names := slices.Clone(SecretKeys)
	for _, e := range Endpoints {
		names = append(names, e.Secret)
	}
	return append(names, SecretConfig)
}
