package sessionclient

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/overwinter-dev/overwinter/internal/contract"
)

func TestAttemptReportsWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	awaits := func(since time.Time) string {
		details, err := converter.GetDefaultDataConverter().ToPayloads(contract.Awaited{What: "the provider", Since: since})
		require.NoError(t, err)
		return pendingOf(&workflow.PendingActivityInfo{
			State: enums.PENDING_ACTIVITY_STATE_STARTED, LastStartedTime: timestamppb.New(began), HeartbeatDetails: details,
		}).Awaits
	}
	require.Equal(t, "the provider", awaits(began.Add(time.Second)))
	require.Empty(t, awaits(began.Add(-time.Second)), "it is of the attempt before")
	require.Empty(t, pendingOf(&workflow.PendingActivityInfo{}).Awaits)
}
