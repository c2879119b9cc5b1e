package turn

import (
	"bufio"
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/runner"
)

// TestSilentLinkIsBroken checks that a message, or a part of one, restarts the timeout, and that
// time in which no message is awaited does not count.
func TestSilentLinkIsBroken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fromWorker, toRunner := io.Pipe()
		fromRunner, toWorker := io.Pipe()
		say := func(m runner.Message) {
			if err := runner.WriteMessage(toWorker, m); err != nil {
				t.Error(err)
			}
		}
		go func() {
			if _, err := runner.ReadMessage(bufio.NewReader(fromWorker)); err != nil {
				t.Error(err)
			}
			say(&runner.Welcome{Version: runner.ProtocolVersion, LastFrame: -1})
			<-time.After(linkSilence - time.Second) // in the time of the bubble
			say(&runner.Frame{Stream: runner.Stdout})
			<-time.After(linkSilence - time.Second)
			if _, err := toWorker.Write([]byte{70, 0, 0, 0, 2}); err != nil { // the head of a message
				t.Error(err)
			}
		}()
		link, err := runner.Dial(t.Context(), toRunner, fromRunner, runner.Hello{Run: "run_1"}, nil)
		require.NoError(t, err)
		ctx, cancel := context.WithCancelCause(t.Context())
		watch := watchSilence(link, ctx.Done(), cancel)
		<-time.After(3 * linkSilence / 4) // no message is awaited
		began := time.Now()
		m, err := watch.next(ctx)
		require.NoError(t, err)
		require.IsType(t, &runner.Frame{}, m.Message)
		_, err = watch.next(ctx)
		require.ErrorIs(t, err, errSilent)
		require.Equal(t, 2*(linkSilence-time.Second)+linkSilence-3*linkSilence/4, time.Since(began))

		watch.stop()
		require.NoError(t, link.Close())
		require.NoError(t, fromWorker.Close())
	})
}

func TestNetworkPollsBackOffWithoutRefusals(t *testing.T) {
	t.Parallel()
	asked, pause := 0, refusalInterval
	for at := pause; at < 10*time.Minute; at += pause {
		asked++
		pause = nextRefusalPause(pause, false)
	}
	require.Less(t, asked, 80)
	require.Equal(t, maxRefusalInterval, pause)
	require.Equal(t, refusalInterval, nextRefusalPause(pause, true))
}
