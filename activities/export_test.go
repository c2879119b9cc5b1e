package activities

import (
	"context"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// MaxTurnFrames bounds the frames of a turn.
const MaxTurnFrames = maxTurnFrames

// Bind checks the hosts of keys as the start of an agent with the profile does.
func Bind(ctx context.Context, secrets Secrets, profile session.ProfileSpec) error {
	t := &turn{Turns: &Turns{Config: &Config{Secrets: secrets}}, start: session.RunStart{Profile: &profile}}
	given, err := t.secrets(ctx, nil)
	if err != nil {
		return err
	}
	return t.bind(ctx, given, profile.Environment)
}
