package session_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestActivityIsDerivedFromRow(t *testing.T) {
	t.Parallel()
	queue := func(queued, processing int64) session.QueueCounts {
		return session.QueueCounts{Queued: queued, Processing: processing, Unknown: 1}
	}
	held := session.QueueCounts{Queued: 1, Hold: session.QueueHold{Since: time.Now()}}
	for _, tt := range []struct {
		s    session.Session
		want session.Activity
	}{
		{session.Session{Status: session.Initializing, Lazy: true}, session.Activity{State: session.NotStarted, Text: "has no sandbox yet; waits for its first prompt"}},
		{session.Session{Status: session.Initializing}, session.Activity{State: session.Starting, Step: "sandbox", Text: "starts: creates the sandbox"}},
		{session.Session{Status: session.Initializing, Lazy: true, Queue: queue(1, 0), Step: "image"}, session.Activity{State: session.Starting, Step: "image", Text: "starts: prepares the image of the agent"}},
		{session.Session{Status: session.Restoring, Step: "clone"}, session.Activity{State: session.Starting, Step: "clone", Text: "wakes: clones the repository"}},
		{session.Session{Status: session.Running, IdleTimeout: time.Minute, Queue: queue(0, 0)}, session.Activity{State: session.Idle, Text: "idle; hibernates after 1m0s"}},
		{session.Session{Status: session.Running, Queue: queue(1, 0)}, session.Activity{State: session.Working, Text: "is about to work on a prompt"}},
		{session.Session{Status: session.Running, Queue: queue(1, 1)}, session.Activity{State: session.Working, Text: "works on a prompt"}},
		{session.Session{Status: session.Running, Queue: queue(1, 1), QuestionsOpen: 1}, session.Activity{State: session.WaitingForAnswer, Text: "waits for the answer to a question"}},
		{session.Session{Status: session.Running, Queue: queue(0, 1), QuestionsOpen: 2}, session.Activity{State: session.WaitingForAnswer, Text: "waits for answers to 2 questions"}},
		{session.Session{Status: session.Hibernating}, session.Activity{State: session.Saving, Text: "saves its files and memory"}},
		{session.Session{Status: session.Hibernated}, session.Activity{State: session.Asleep, Text: "hibernated; wakes for the next prompt"}},
		{session.Session{Status: session.Initializing, Lazy: true, Queue: held}, session.Activity{State: session.NotStarted, Text: "has no sandbox yet; its queue is held until a release"}},
		{session.Session{Status: session.Running, IdleTimeout: time.Minute, Queue: held}, session.Activity{State: session.Idle, Text: "idle; its queue is held until a release; hibernates after 1m0s"}},
		{session.Session{Status: session.Hibernated, Queue: held}, session.Activity{State: session.Asleep, Text: "hibernated; its queue is held until a release"}},
		{session.Session{Status: session.Error}, session.Activity{State: session.Failed, Text: "waits for recover or stop"}},
		{session.Session{Status: session.Terminated}, session.Activity{State: session.Ended, Text: "terminated"}},
	} {
		require.Equal(t, tt.want, tt.s.Activity())
	}
}
