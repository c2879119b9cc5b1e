package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// recordedOutage is an outage as passed to outageStore.
type recordedOutage struct {
	part          string
	since, lasted time.Duration // since the test began
}

// outageStore fails during an outage of the database.
type outageStore struct {
	begun   time.Time
	away    *atomic.Bool
	outages []recordedOutage
}

func (s *outageStore) OutageRecord(_ context.Context, part string, began, ended time.Duration) error {
	if s.away.Load() {
		return errors.New("away")
	}
	s.outages = append(s.outages, recordedOutage{part, time.Since(s.begun) - began, began - ended})
	return nil
}

func TestEndedOutagesAreRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var database, temporal, refused, frozen, nothing atomic.Bool
		// look hangs until its deadline during an outage of a part, and longer while this process
		// is frozen.
		look := func(away *atomic.Bool) func(context.Context) error {
			return func(ctx context.Context) error {
				if frozen.Load() {
					<-time.After(time.Minute)
					return ctx.Err()
				}
				if refused.Load() {
					return errors.New("refused")
				}
				if away.Load() {
					<-ctx.Done()
				}
				return ctx.Err()
			}
		}
		store := &outageStore{begun: time.Now(), away: &database}
		o := Outages{Store: store, Database: look(&database), Temporal: look(&temporal)}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- o.run(ctx, slog.New(slog.DiscardHandler)) }()
		during := func(away *atomic.Bool, d time.Duration) {
			<-time.After(9 * time.Second)
			away.Store(true)
			<-time.After(d)
			away.Store(false)
			<-time.After(21 * time.Second)
			synctest.Wait()
		}
		during(&database, 15*time.Second)
		require.Len(t, store.outages, 1)
		require.Equal(t, recordedOutage{partDatabase, 10 * time.Second, 15 * time.Second}, store.outages[0])
		during(&temporal, 15*time.Second)
		require.Len(t, store.outages, 2)
		require.Equal(t, partTemporal, store.outages[1].part)
		during(&refused, time.Second)
		require.Len(t, store.outages, 2, "short outages are not recorded")
		during(&frozen, 50*time.Second)
		during(&nothing, time.Second) // until the parts are checked again
		during(&nothing, time.Second)
		require.Len(t, store.outages, 2, "it was this process that did not run")
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
}
