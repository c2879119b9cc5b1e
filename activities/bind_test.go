package activities_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/secret"
)

// kept are the stored secrets of a test, and the hosts that they are bound to.
type kept struct {
	values map[string]string
	hosts  map[string][]string
}

func (k kept) Secrets(_ context.Context, names []string) (map[string]secret.Stored, error) {
	out := map[string]secret.Stored{}
	for _, name := range names {
		if value, ok := k.values[name]; ok {
			out[name] = secret.Stored{Value: secret.NewValue(value), Hosts: k.hosts[name]}
		}
	}
	return out, nil
}

func (b *harness) keep(values map[string]string) {
	b.config.Secrets = kept{values: values}
	b.build()
}

func TestAgentGetsSecretsOfProfile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.keep(map[string]string{"GITHUB_TOKEN": "named-1234", "ANTHROPIC_API_KEY": "other-1234"})
	p := b.profile(t, profile.Profile{Name: "p", Spec: profile.Spec{Secrets: []string{"GITHUB_TOKEN"}}})
	ready := b.create(t)
	in := b.claim(t, ready, "$ echo token:$GITHUB_TOKEN key:$ANTHROPIC_API_KEY.")
	_, err := b.turn(in)
	require.NoError(t, err)
	require.Contains(t, b.printed(t, in.RunID), "token:named-1234 key:.")

	p.Spec.Secrets = []string{"GITHUB_TOKEN", "MISSING_KEY"}
	b.profile(t, p)
	_, err = b.turn(b.claim(t, ready, "$ true"))
	requireType(t, activities.Refused, err)
	require.ErrorContains(t, err, "the profile names the secret MISSING_KEY, which is not stored")
}

// The check precedes every prompt, and its error becomes the reason of the failed turn.
func TestPromptWithKeyForAnotherHostIsNotDelivered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.keep(map[string]string{"ANTHROPIC_API_KEY": "sk-1234567890"})
	b.profile(t, profile.Profile{Name: "p", Spec: profile.Spec{
		Secrets: []string{"ANTHROPIC_API_KEY"}, Environment: map[string]string{"ANTHROPIC_BASE_URL": "https://attacker.example"},
	}})
	in := b.claim(t, b.create(t), "$ env")
	_, err := b.turn(in)
	requireType(t, activities.Refused, err)
	require.ErrorContains(t, err, "sends the secret ANTHROPIC_API_KEY to attacker.example, but it is bound to api.anthropic.com")
	require.Empty(t, b.printed(t, in.RunID))
}
