package turn

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// refusedTranslator ends its turn with its first frame.
type refusedTranslator struct{ agent.Translator }

func (refusedTranslator) Translate(agent.Frame) (agent.Translation, error) {
	return agent.Translation{End: &agent.TurnEnd{Reason: "invalid key", Unauthorized: &agent.Unauthorized{Status: 401}}}, nil
}

func TestReasonOfRefusalIsShownAsError(t *testing.T) {
	t.Parallel()
	c := convert{
		translator: refusedTranslator{}, limits: &conversation.Limiter{},
		explain: func(end agent.TurnEnd) string { return "explained: " + end.Reason },
	}
	translated, err := c.translate(agent.Frame{Stream: agent.Stdout})
	require.NoError(t, err)
	require.Equal(t, "explained: invalid key", translated.End.Reason)
	events := translated.events
	require.Len(t, events, 1)
	require.Equal(t, string(conversation.EventError), events[0].Type)
	require.JSONEq(t, `{"code": "authentication_failed", "message": "explained: invalid key"}`, string(events[0].Data))
}

func TestRefusedKeyIsNamedWithItsServer(t *testing.T) {
	t.Parallel()
	claude := []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"}
	many := []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"}
	for name, c := range map[string]struct {
		refused      agent.Unauthorized
		names        []string
		secrets, env map[string]string
		want         string
	}{
		"the provider's own server": {
			names: claude, secrets: map[string]string{"ANTHROPIC_API_KEY": "k"},
			want: "at https://api.anthropic.com responded with 401 to the secret ANTHROPIC_API_KEY; store a valid one with PUT /api/secrets/ANTHROPIC_API_KEY. " +
				"The agent reported: invalid key",
		},
		"a stored base URL, without its password and path": {
			names: claude, secrets: map[string]string{"ANTHROPIC_AUTH_TOKEN": "k", "ANTHROPIC_BASE_URL": "http://me:word@10.0.0.7:8080/v1"},
			want: "at http://10.0.0.7:8080 responded with 401 to the secret ANTHROPIC_AUTH_TOKEN; store a valid one with PUT /api/secrets/ANTHROPIC_AUTH_TOKEN.",
		},
		"a key and a base URL of the profile": {
			names: claude, env: map[string]string{"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "https://models.example"},
			want: "at https://models.example responded with 401 to the key in ANTHROPIC_API_KEY of the profile; store a new version of the profile.",
		},
		"no key": {
			names: claude, want: "the model server responded with 401; the agent was given no key: store one with PUT /api/secrets/ANTHROPIC_API_KEY.",
		},
		"an unknown command": {want: "name it in the secrets of the profile."},
		"the provider that the agent says": {
			refused: agent.Unauthorized{Provider: "openai", URL: "http://host.overwinter.internal:1/v1"}, names: many,
			secrets: map[string]string{"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"},
			want:    "at http://127.0.0.1:1 responded with 401 to the secret OPENAI_API_KEY; ",
		},
		"the server that the agent says": {
			refused: agent.Unauthorized{URL: "https://api.openai.com/v1/responses"}, names: many,
			secrets: map[string]string{"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"},
			want:    "at https://api.openai.com responded with 401 to the secret OPENAI_API_KEY; ",
		},
		"two keys that may have been used": {
			names: claude, secrets: map[string]string{"ANTHROPIC_API_KEY": "k", "ANTHROPIC_AUTH_TOKEN": "k"},
			want: "to the secret ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN; store a valid one with PUT /api/secrets/ANTHROPIC_API_KEY or PUT /api/secrets/ANTHROPIC_AUTH_TOKEN.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.refused.Status = 401
			got := refusal(agent.TurnEnd{Reason: "invalid key", Unauthorized: &c.refused}, c.names, c.secrets, c.env)
			require.True(t, strings.HasPrefix(got, "authentication failed: "), got)
			require.Contains(t, got, c.want)
		})
	}
}
