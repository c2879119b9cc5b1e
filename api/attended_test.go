package api_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// never is longer than a test.
const never = time.Hour

// setupAttended is setup for a session with an attendant, which claims prompts if claims is set.
func setupAttended(t *testing.T, claims bool, claimWait, recordAfter time.Duration) (b *harness, id string) {
	t.Helper()
	b = setup(t, func(c *api.Config) { c.ClaimWait, c.RecordAfter = claimWait, recordAfter })
	id = b.store.Put(session.Running)
	b.store.Attend(id, claims)
	return b, id
}

func (b *harness) promptNamed(id, promptID string) {
	b.t.Helper()
	a := b.do("POST", "/api/sessions/"+id+"/prompts", fmt.Sprintf(`{"id":%q,"content":"hello"}`, promptID))
	require.Equal(b.t, http.StatusAccepted, a.status, "%s", a.body)
}

// signals waits until n signals were sent and returns them.
func (b *harness) signals(t *testing.T, n int) []string {
	t.Helper()
	var signals []string
	eventually(t, fmt.Sprintf("%d signals", n), func() bool {
		signals = append(signals, b.temp.TakeCalls()...)
		return len(signals) >= n
	})
	return signals
}

func TestClaimedPromptsOfAttendedSessionShareSignal(t *testing.T) {
	t.Parallel()
	b, id := setupAttended(t, true, never, never)
	b.promptNamed(id, "p1")
	b.promptNamed(id, "p2")
	require.Empty(t, b.temp.TakeCalls(), "the attendant has them")
	require.NoError(t, b.stop())
	require.Equal(t, []string{"attended " + id + " [{p1 1} {p2 2}]"}, b.temp.TakeCalls())
}

func TestClaimedPromptsAreRecordedInTime(t *testing.T) {
	t.Parallel()
	b, id := setupAttended(t, true, 2*time.Millisecond, 10*time.Millisecond)
	b.promptNamed(id, "p1")
	require.Equal(t, []string{"attended " + id + " [{p1 1}]"}, b.signals(t, 1))
	b.promptNamed(id, "p2")
	require.Equal(t, []string{"attended " + id + " [{p2 2}]"}, b.signals(t, 1))
	require.NoError(t, b.stop())
	require.Empty(t, b.temp.TakeCalls(), "each once")
}

func TestUnclaimedAttendedPromptIsSignalled(t *testing.T) {
	t.Parallel()
	b, id := setupAttended(t, false, 10*time.Millisecond, never)
	b.promptNamed(id, "p1")
	require.Equal(t, []string{"prompt " + id + " p1 1"}, b.signals(t, 1))
	require.NoError(t, b.stop())
	require.Empty(t, b.temp.TakeCalls(), "it is in the history by itself")
}

func TestStoppingServerSignalsUnclaimedPrompts(t *testing.T) {
	t.Parallel()
	b, id := setupAttended(t, false, never, never)
	b.promptNamed(id, "p1")
	b.promptNamed(id, "p2")
	require.NoError(t, b.stop())
	require.Equal(t, []string{"prompt " + id + " p1 1", "prompt " + id + " p2 2"}, sorted(b.temp.TakeCalls()))
}

// promptSessions prompts n sessions with attendants, and returns their records.
func (b *harness) promptSessions(n int) (records []string) {
	b.t.Helper()
	for range n {
		id := b.store.Put(session.Running)
		b.store.Attend(id, true)
		b.promptNamed(id, "p1")
		records = append(records, "attended "+id+" [{p1 1}]")
	}
	return records
}

// TestStoppingServerRecordsPromptsOfAllSessions has more sessions than are recorded at the same time.
func TestStoppingServerRecordsPromptsOfAllSessions(t *testing.T) {
	t.Parallel()
	b, _ := setupAttended(t, true, never, never)
	records := b.promptSessions(30)
	require.NoError(t, b.stop())
	require.ElementsMatch(t, records, b.temp.TakeCalls())
}

// TestServerStopsWithoutRecordsWhileTemporalIsFrozen has many more records than the time of a stop allows.
func TestServerStopsWithoutRecordsWhileTemporalIsFrozen(t *testing.T) {
	t.Parallel()
	b, _ := setupAttended(t, true, never, never)
	b.promptSessions(200)
	b.temp.Set(func(o *apitest.Signaler) { o.Hang = true })
	stopped := make(chan error, 1)
	go func() { stopped <- b.stop() }()
	select {
	case err := <-stopped:
		require.NoError(t, err)
	case <-time.After(15 * time.Second):
		require.FailNow(t, "the server waits for its records")
	}
}

func TestAttendedPromptsAreSignalledDuringPostgresOutage(t *testing.T) {
	t.Parallel()
	b, id := setupAttended(t, true, 10*time.Millisecond, never)
	b.store.Fail("PromptsUnclaimed", errors.New("down"))
	b.promptNamed(id, "p1")
	require.Equal(t, []string{"prompt " + id + " p1 1"}, b.signals(t, 1))
}

func TestFailedRecordIsRetried(t *testing.T) {
	t.Parallel()
	b, id := setupAttended(t, true, 2*time.Millisecond, 10*time.Millisecond)
	b.temp.Set(func(o *apitest.Signaler) { o.Err = errors.New("down") })
	b.promptNamed(id, "p1")
	b.signals(t, 1)
	b.promptNamed(id, "p2")
	b.temp.Set(func(o *apitest.Signaler) { o.Err = nil })
	named := "" // both are in one signal, unless the first one is repeated before the second one is checked
	eventually(t, "signals name both", func() bool {
		named += strings.Join(b.temp.TakeCalls(), "\n")
		return strings.Contains(named, "{p1 1}") && strings.Contains(named, "{p2 2}")
	})
}

func TestUnrecordedPromptsAreBounded(t *testing.T) {
	t.Parallel()
	b, id := setupAttended(t, true, never, never)
	for i := range 102 {
		b.promptNamed(id, fmt.Sprintf("p%d", i))
	}
	require.Equal(t, []string{"prompt " + id + " p100 101", "prompt " + id + " p101 102"}, b.temp.TakeCalls())
	require.NoError(t, b.stop())
	calls := b.temp.TakeCalls()
	require.Len(t, calls, 1)
	require.Equal(t, 100, strings.Count(calls[0], "{"))
}

// TestManyClaimedPromptsAreRecordedBeforeTheirTime checks that a client with many short turns does not
// cause a signal for each of them.
func TestManyClaimedPromptsAreRecordedBeforeTheirTime(t *testing.T) {
	t.Parallel()
	b, id := setupAttended(t, true, 2*time.Millisecond, never)
	named := 0
	for i := range 200 {
		b.promptNamed(id, fmt.Sprintf("p%d", i))
		if (i+1)%50 != 0 {
			continue
		}
		eventually(t, "a record of most prompts", func() bool {
			for _, call := range b.temp.TakeCalls() {
				require.Contains(t, call, "attended "+id)
				named += strings.Count(call, "{")
			}
			return named > i-50
		})
	}
}

// TestPromptsThatArriveDuringSlowRecordAreRecordedAfterIt checks that half a list of prompts that is left
// after a record does not wait for the next time.
func TestPromptsThatArriveDuringSlowRecordAreRecordedAfterIt(t *testing.T) {
	t.Parallel()
	b, id := setupAttended(t, true, 2*time.Millisecond, never)
	answer := make(chan struct{})
	b.temp.Set(func(o *apitest.Signaler) { o.Hang, o.Until = true, answer })
	for i := range 50 {
		b.promptNamed(id, fmt.Sprintf("p%d", i))
	}
	first := strings.Count(b.signals(t, 1)[0], "{")
	for i := range 50 { // at least half of a list is left
		b.promptNamed(id, fmt.Sprintf("q%d", i))
	}
	b.temp.Set(func(o *apitest.Signaler) { o.Hang = false })
	close(answer)
	require.Positive(t, strings.Count(b.signals(t, 1)[0], "{"))
	require.LessOrEqual(t, first, 50)
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}
