package beat

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTimersOfSameIntervalExpireTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		<-time.After(300 * time.Millisecond)
		first := time.Now().Add(next(began, time.Second))
		<-time.After(500 * time.Millisecond)
		second := time.Now().Add(next(began, time.Second))
		require.Equal(t, first, second)
		<-time.After(200 * time.Millisecond)
		require.Equal(t, time.Second, next(began, time.Second), "a timer that has just expired does not expire again at once")
	})
}
