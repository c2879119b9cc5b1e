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
	data, err := ping(ctx, dir, r, false)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s\n", data)
	return err
}

// ping asks for the state of the runner, as JSON; with found, also for the digest of the workspace.
func ping(ctx context.Context, dir string, r runner.PingRequest, found bool) ([]byte, error) {
	return call(ctx, dir, r.Wait, &runner.Command{Token: r.Token, Ping: true, Found: found}, nothingElse)
}
