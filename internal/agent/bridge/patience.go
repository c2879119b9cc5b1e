package bridge

import (
	"os"
	"time"
)

// EnvPatience is the environment variable, of a profile for one, that says how long a turn may go on
// in which the model's server does nothing but fail, as a Go duration such as 90s.
const EnvPatience = "OVERWINTER_PATIENCE"

// Patience is what EnvPatience says, or otherwise where it says nothing that can be meant.
func Patience(otherwise time.Duration) time.Duration {
	d, err := time.ParseDuration(os.Getenv(EnvPatience))
	if err != nil || d <= 0 {
		return otherwise
	}
	return d
}
