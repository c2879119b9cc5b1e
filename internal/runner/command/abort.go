package command

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

// Abort aborts the turn of a run.
func Abort(ctx context.Context, dir, run string, stdin io.Reader, stdout io.Writer) error {
	var r runner.AbortRequest
	if err := request(stdin, &r); err != nil {
		return err
	}
	if r.Run != run {
		return &ExitError{runner.ExitUsage, errors.New("the request on stdin is not of the run on the command line")}
	}
	c := &runner.Command{Token: r.Token, Abort: &r}
	data, err := call(ctx, dir, dialBudget, c, nothingElse)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s\n", data)
	return err
}
