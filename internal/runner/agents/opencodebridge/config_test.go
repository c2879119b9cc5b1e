package opencodebridge

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSecretsCompleteConfiguration(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		launch  string
		secrets map[string]string
		want    string
	}{
		"nothing is known": {"", nil, `{"disabled_providers":["opencode"],"provider":{}}`},
		"the model of the key that is there": {
			`{"share":"disabled"}`,
			map[string]string{"OPENAI_API_KEY": "k"},
			`{"share":"disabled","disabled_providers":["opencode"],"provider":{},"model":"openai/gpt-6-sol"}`,
		},
		"a chosen model stays": {
			`{"model":"openai/mine"}`,
			map[string]string{"OPENAI_API_KEY": "k"},
			`{"disabled_providers":["opencode"],"provider":{},"model":"openai/mine"}`,
		},
		"an address gets the version of its API once": {
			"",
			map[string]string{"ANTHROPIC_BASE_URL": "http://a/", "GOOGLE_GEMINI_BASE_URL": "http://g/v1beta"},
			`{"disabled_providers":["opencode"],"provider":{"anthropic":{"options":{"baseURL":"http://a/v1"}},"google":{"options":{"baseURL":"http://g/v1beta"}}}}`,
		},
		"its own provider stays with a key": {"", map[string]string{"OPENCODE_API_KEY": "k"}, `{"provider":{}}`},
		"own configuration comes last": {
			`{"permission":{"bash":"ask"}}`,
			map[string]string{"ANTHROPIC_BASE_URL": "http://a", "OPENCODE_CONFIG_CONTENT": `{"permission":{"edit":"deny"},"provider":{"anthropic":{"options":{"timeout":7}}}}`},
			`{"permission":{"bash":"ask","edit":"deny"},"disabled_providers":["opencode"],"provider":{"anthropic":{"options":{"baseURL":"http://a/v1","timeout":7}}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := withSecrets(c.launch, func(name string) string { return c.secrets[name] })
			require.NoError(t, err)
			require.JSONEq(t, c.want, string(got))
		})
	}
}

func TestConfigurationErrorHidesContent(t *testing.T) {
	t.Parallel()
	_, err := withSecrets("", func(name string) string {
		if name == "OPENCODE_CONFIG_CONTENT" {
			return `{"apiKey":"sk-secret"`
		}
		return ""
	})
	require.ErrorIs(t, err, errConfig)
	require.NotContains(t, err.Error(), "sk-secret")
}
