package command

import (
	"context"
	"fmt"
	"io"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

// Ping prints the state of the runner.
func Ping(ctx context.Context, dir string, stdin io.Reader, stdout io.Writer) error {
	var r runner.PingRequest
	if err := request(stdin, &r); err != nil {
		return err
	}
	data, err := call(ctx, dir, r.Wait, &runner.Command{Token: r.Token, Ping: true}, nothingElse)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s\n", data)
	return err
}
