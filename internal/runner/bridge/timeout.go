package bridge

import (
	"errors"
	"flag"
	"os"
	"time"
)

// EnvModelTimeout is the environment variable, for example of a profile, that sets how long a turn
// continues while the model does not respond, as a Go duration such as 90s. EnvModelTimeoutAlias is
// its earlier name, which is still read if EnvModelTimeout is not a positive duration.
const (
	EnvModelTimeout      = "OVERWINTER_MODEL_TIMEOUT"
	EnvModelTimeoutAlias = "OVERWINTER_PATIENCE"
)

// ModelTimeout declares the flag --model-timeout, which sets how long a turn continues while the
// model does not respond: every request fails, or the agent is silent. Its default is
// EnvModelTimeout or its alias, or otherwise if neither is a positive duration.
func ModelTimeout(flags *flag.FlagSet, otherwise time.Duration) *time.Duration {
	timeout := otherwise
	for _, name := range []string{EnvModelTimeout, EnvModelTimeoutAlias} {
		if d, err := positive(os.Getenv(name)); err == nil {
			timeout = d
			break
		}
	}
	flags.Func("model-timeout", "fail the turn if the model gives no answer for this `duration` (default "+timeout.String()+")", func(value string) error {
		d, err := positive(value)
		if err == nil {
			timeout = d
		}
		return err
	})
	return &timeout
}

func positive(value string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err == nil && d <= 0 {
		err = errors.New("must be positive")
	}
	return d, err
}
