package workflows

import (
	"go.temporal.io/sdk/temporal"

	"github.com/overwinter-dev/overwinter/activities"
)

// lostError is what a turn ends with when the provider has said, to somebody
// else, that its sandbox is gone.
func (l *life) lostError() error {
	return temporal.NewNonRetryableApplicationError("the sandbox ended: "+l.lost.Reason, activities.SandboxLost, nil)
}
