package bridge

import (
	"os"
	"time"
)

// EnvPatience is the environment variable, for example of a profile, that sets how long a turn
// continues while all requests to the model fail, as a Go duration such as 90s.
const EnvPatience = "OVERWINTER_PATIENCE"

// Patience is what EnvPatience says, or otherwise where it says nothing that can be meant.
func Patience(otherwise time.Duration) time.Duration {
	d, err := time.ParseDuration(os.Getenv(EnvPatience))
	if err != nil || d <= 0 {
		return otherwise
	}
	return d
}
