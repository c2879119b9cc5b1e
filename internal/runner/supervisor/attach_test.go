package supervisor

import (
	"bufio"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

func TestADetachedExecDoesNotWaitForever(t *testing.T) {
	t.Parallel()
	stdin, worker := io.Pipe()
	a := &attachment{stdin: make(chan runner.Message), stdinErr: make(chan error, 1)}
	go a.listen(t.Context(), bufio.NewReader(stdin))
	over := make(chan time.Time)
	close(over)
	hello, err := a.hello(t.Context(), over)
	require.NoError(t, err)
	require.Nil(t, hello)

	never := make(chan time.Time)
	go func() { _ = runner.WriteMessage(worker, &runner.Hello{Run: "run_1"}) }()
	hello, err = a.hello(t.Context(), never)
	require.NoError(t, err)
	require.Equal(t, "run_1", hello.Run)

	go func() { _ = runner.WriteMessage(worker, &runner.Settle{}) }()
	_, err = a.hello(t.Context(), never)
	require.ErrorContains(t, err, "cannot begin with")

	require.NoError(t, worker.Close())
	hello, err = a.hello(t.Context(), never)
	require.NoError(t, err)
	require.Nil(t, hello, "the worker has gone")
}
