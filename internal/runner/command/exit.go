package command

import (
	"github.com/overwinter-dev/overwinter/internal/runner"
)

// ExitError is an error with the exit code of its kind.
type ExitError struct {
	ExitCode int
	Err      error
}

func (e *ExitError) Error() string { return e.Err.Error() }

func (e *ExitError) Unwrap() error { return e.Err }

// refusal converts the runner's last message to an error with an exit code.
func refusal(e *runner.Error) error {
	switch e.Code {
	case runner.CodeToken, runner.CodeVersion, runner.CodeStale, runner.CodeInvalid:
		return &ExitError{runner.ExitRefused, e}
	default:
		return e
	}
}
