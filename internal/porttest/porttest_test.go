package porttest

import (
	"fmt"
	"net"
	"os/exec"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Programs are started continuously, each of which briefly holds this process's sockets.
func TestFreePortIsFreeWhileProgramsStart(t *testing.T) {
	t.Parallel()
	var programs sync.WaitGroup
	done := make(chan struct{})
	for range 6 {
		programs.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_ = exec.CommandContext(t.Context(), "true").Run() // only its start matters
				}
			}
		})
	}
	defer programs.Wait()
	defer close(done)
	for range 1000 {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", Free(t)))
		require.NoError(t, err)
		require.NoError(t, listener.Close())
	}
}

func TestPortInUseIsNotFree(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::]:0"} {
		listener, err := net.Listen("tcp", address)
		require.NoError(t, err)
		require.False(t, isFree(listener.Addr().(*net.TCPAddr).Port), address)
		require.NoError(t, listener.Close())
	}
}
