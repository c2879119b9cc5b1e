package worker_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/sessionclient"
	"github.com/overwinter-dev/overwinter/worker"
)

// installation is a database and its Temporal client.
type installation struct {
	*postgres.DB
	url string
	id  string
}

func setupInstallation(t *testing.T) *installation {
	t.Helper()
	i := &installation{url: postgrestest.URL(t)}
	i.DB = postgrestest.Open(t, i.url)
	var err error
	i.id, err = i.Installation(t.Context())
	require.NoError(t, err)
	return i
}

// worker returns a worker that loads the installation's sessions.
func (i *installation) worker(c client.Client) worker.Config {
	control, turns := activities.New(activities.Config{
		Store: i.DB, Queue: contract.QueuesOf(i.id).Control, Logger: slog.New(slog.DiscardHandler),
	})
	return worker.Config{
		Temporal: c, Control: control, Turns: turns, Installation: i.id, Legacy: i.DB, LegacyEvery: 20 * time.Millisecond,
		Relay: worker.Relay{Rows: nothing{}, Signaler: &signaler{}},
	}
}

// session creates a lazy session whose workflow is started on a queue.
func (i *installation) session(t *testing.T, c client.Client, queue string) string {
	t.Helper()
	s, _, err := i.SessionCreate(t.Context(), session.Session{ID: session.NewID(session.SessionPrefix), Agent: "demo", Lazy: true}, nil, session.Idempotency{})
	require.NoError(t, err)
	o := sessionclient.New(c, "default", sessionclient.At(queue))
	require.Eventually(t, func() bool { return o.SignalPrompt(t.Context(), s.ID, "", 0) == nil }, waitLimit, 20*time.Millisecond)
	t.Cleanup(func() { c.TerminateWorkflow(t.Context(), s.ID, "", "the test has ended") }) //nolint:errcheck // it may have ended
	return s.ID
}

func (i *installation) loaded(t *testing.T, id string) bool {
	t.Helper()
	s, err := i.SessionGet(t.Context(), id)
	require.NoError(t, err)
	return s.Loaded
}

func TestInstallationsInOneNamespaceAreSeparate(t *testing.T) {
	t.Parallel()
	c := dial(t)
	one, other := setupInstallation(t), setupInstallation(t)
	lone := one.session(t, c, contract.QueuesOf(one.id).Control)
	start(t, other.worker(c))
	for range 3 {
		id := other.session(t, c, contract.QueuesOf(other.id).Control)
		require.Eventually(t, func() bool { return other.loaded(t, id) }, waitLimit, 10*time.Millisecond)
	}
	d, err := c.DescribeWorkflowExecution(t.Context(), lone, "")
	require.NoError(t, err)
	require.Equal(t, enums.PENDING_WORKFLOW_TASK_STATE_SCHEDULED, d.GetPendingWorkflowTask().GetState(), "no worker has taken it")
	require.False(t, one.loaded(t, lone))

	start(t, one.worker(c))
	require.Eventually(t, func() bool { return one.loaded(t, lone) }, waitLimit, 10*time.Millisecond)
	for _, i := range []*installation{one, other} {
		require.Eventually(t, func() bool {
			_, err := c.ScheduleClient().GetHandle(t.Context(), contract.ScheduleOf(i.id)).Describe(t.Context())
			return err == nil
		}, waitLimit, 20*time.Millisecond)
		t.Cleanup(func() { c.ScheduleClient().GetHandle(t.Context(), contract.ScheduleOf(i.id)).Delete(t.Context()) }) //nolint:errcheck // the server ends with the tests
	}
}

// TestQueuesOfEarlierReleaseArePolledUntilTheyAreDrained is not parallel: the queues are shared.
func TestQueuesOfEarlierReleaseArePolledUntilTheyAreDrained(t *testing.T) { //nolint:paralleltest // see above
	for name, build := range map[string]string{"no build": "", "a build": "v1"} { //nolint:paralleltest // see above
		t.Run(name, func(t *testing.T) { drainsLegacyQueues(t, build) })
	}
}

// drainsLegacyQueues runs a worker of a build, "" for none, which need not be current.
func drainsLegacyQueues(t *testing.T, build string) {
	t.Helper()
	c := dial(t)
	i := setupInstallation(t)
	upgraded := func(age string) {
		conn, err := pgx.Connect(t.Context(), i.url)
		require.NoError(t, err)
		defer conn.Close(t.Context())
		_, err = conn.Exec(t.Context(), "UPDATE installation SET legacy_queues_since = now() - $1::interval", age)
		require.NoError(t, err)
	}
	upgraded("1 minute")
	id := i.session(t, c, contract.QueuesOf("").Control)
	config := i.worker(c)
	config.Deployment.Build = build
	_, stop := start(t, config)
	require.Eventually(t, func() bool { return i.loaded(t, id) }, waitLimit, 10*time.Millisecond)

	upgraded("25 hours")
	require.Never(t, func() bool {
		legacy, err := i.LegacyQueues(t.Context())
		return err == nil && !legacy
	}, 200*time.Millisecond, 20*time.Millisecond, "the workflow is open")
	require.NoError(t, c.TerminateWorkflow(t.Context(), id, "", "it moves"))
	require.Eventually(t, func() bool {
		legacy, err := i.LegacyQueues(t.Context())
		return err == nil && !legacy
	}, waitLimit, 20*time.Millisecond)
	require.NoError(t, stop())
}
