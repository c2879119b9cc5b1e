package devstack

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestUnresponsivePartIsLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		frozen := false
		worker := watched{"worker", func(ctx context.Context) error {
			if !frozen {
				return nil
			}
			<-ctx.Done()
			return errors.Join(errors.New("no answer"), ctx.Err())
		}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			worker.watch(ctx, slog.New(slog.NewTextHandler(&out, nil)))
		}()
		after := func(d time.Duration) string {
			<-time.After(d)
			synctest.Wait()
			return out.String()
		}
		require.Empty(t, after(time.Hour))
		frozen = true
		require.Empty(t, after(watchEvery), "one probe may fail")
		require.Contains(t, after(time.Hour), `msg="a part of the system does not work" part=worker error="no answer`)
		require.Equal(t, 1, strings.Count(out.String(), "does not work"))
		frozen = false
		require.Contains(t, after(2*watchEvery), `msg="a part of the system works again" part=worker after=1h0m`)
		cancel()
		<-done
	})
}
