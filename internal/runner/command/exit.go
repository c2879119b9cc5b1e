package command

import (
	"github.com/overwinter-dev/overwinter/internal/runner"
)

// ExitError is a failure with the exit code of its kind.
type ExitError struct {
	ExitCode int
	Err      error
}

func (e *ExitError) Error() string { return e.Err.Error() }

func (e *ExitError) Unwrap() error { return e.Err }

// refusal turns the runner's last message into an exit code.
func refusal(e *runner.Error) error {
	switch e.Code {
	case runner.CodeToken, runner.CodeVersion, runner.CodeStale, runner.CodeInvalid:
		return &ExitError{runner.ExitRefused, e}
	default:
		return e
	}
}
