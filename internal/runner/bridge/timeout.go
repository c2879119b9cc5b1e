package bridge

import (
	"errors"
	"flag"
	"os"
	"time"
)

// EnvModelTimeout is the environment variable, for example of a profile, that sets how long a turn
// continues while the model does not respond, as a Go duration such as 90s.
const EnvModelTimeout = "OVERWINTER_PATIENCE"

// ModelTimeout declares the flag --model-timeout, which sets how long a turn continues while the
// model does not respond: every request fails, or the agent is silent. Its default is
// EnvModelTimeout, or otherwise if that is not a positive duration.
func ModelTimeout(flags *flag.FlagSet, otherwise time.Duration) *time.Duration {
	timeout, err := positive(os.Getenv(EnvModelTimeout))
	if err != nil {
		timeout = otherwise
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
