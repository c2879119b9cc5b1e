package agent_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/profile"
)

func TestSessionModelOverridesProfile(t *testing.T) {
	t.Parallel()
	ofProfile := &profile.Spec{Model: "profile's"}
	for _, c := range []struct {
		model   string
		profile *profile.Spec
		want    string
	}{
		{"", nil, ""}, {"", ofProfile, "profile's"}, {"session's", ofProfile, "session's"}, {agent.DefaultModel, ofProfile, agent.DefaultModel},
	} {
		require.Equal(t, c.want, agent.LaunchInput{Model: c.model, Profile: c.profile}.ChosenModel())
	}
}
