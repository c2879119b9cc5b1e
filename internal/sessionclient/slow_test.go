package sessionclient

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/history/v1"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/overwinter-dev/overwinter/internal/why"
)

func TestSlowAttemptIsNotable(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	took := func(d time.Duration) []why.Event {
		return notable([]*history.HistoryEvent{
			{EventId: 5, EventTime: timestamppb.New(began.Add(-time.Minute)), Attributes: &history.HistoryEvent_ActivityTaskScheduledEventAttributes{
				ActivityTaskScheduledEventAttributes: &history.ActivityTaskScheduledEventAttributes{ActivityType: &common.ActivityType{Name: "RestoreSandbox"}},
			}},
			{EventId: 6, EventTime: timestamppb.New(began), Attributes: &history.HistoryEvent_ActivityTaskStartedEventAttributes{
				ActivityTaskStartedEventAttributes: &history.ActivityTaskStartedEventAttributes{ScheduledEventId: 5, Attempt: 1},
			}},
			{EventId: 7, EventTime: timestamppb.New(began.Add(d)), Attributes: &history.HistoryEvent_ActivityTaskCompletedEventAttributes{
				ActivityTaskCompletedEventAttributes: &history.ActivityTaskCompletedEventAttributes{ScheduledEventId: 5, StartedEventId: 6},
			}},
		})
	}
	require.Empty(t, took(why.SlowAfter-time.Millisecond))
	require.Equal(t, []why.Event{{At: began.Add(why.SlowAfter), Kind: why.StepWasSlow, Activity: "RestoreSandbox", Took: why.SlowAfter}}, took(why.SlowAfter))
}
