package agent_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestTheModelOfTheSessionPrecedesThatOfItsProfile(t *testing.T) {
	t.Parallel()
	profile := &session.ProfileSpec{Model: "profile's"}
	for _, c := range []struct {
		model   string
		profile *session.ProfileSpec
		want    string
	}{
		{"", nil, ""}, {"", profile, "profile's"}, {"session's", profile, "session's"}, {agent.DefaultModel, profile, agent.DefaultModel},
	} {
		require.Equal(t, c.want, agent.LaunchInput{Model: c.model, Profile: c.profile}.ChosenModel())
	}
}
