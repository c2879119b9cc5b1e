package postgres_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func seen(id string, generation int64, status session.SandboxStatus) []session.SandboxSeen {
	return []session.SandboxSeen{{SandboxKey: session.SandboxKey{SessionID: id, Generation: generation}, Status: status}}
}

// TestRepeatedTransitionEndsNoLaterSandbox records a transition again, as an attempt does that is late.
func TestRepeatedTransitionEndsNoLaterSandbox(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.reserve(t, 1)
	b.transit(t, session.EventReady, session.ReasonPrompt)
	b.transit(t, session.EventHibernate, session.ReasonRequested)
	s, err := b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	saved := session.Transition{
		SessionID: b.id, No: s.TransitionNo + 1, From: session.Hibernating, To: session.Hibernated, Event: session.EventSaved,
		Reason: session.ReasonRequested, Generation: 1,
	}
	require.NoError(t, b.TransitionRecordEnded(b.ctx, saved, []int64{1}, "hibernated"))
	b.awake(t, session.ReasonRequested)
	require.NoError(t, b.TransitionRecordEnded(b.ctx, saved, []int64{1, 2}, "hibernated"))
	rows, err := b.SandboxesOpen(b.ctx, b.id)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.EqualValues(t, 2, rows[0].Generation)
	require.Equal(t, saved.No+2, rows[0].Transition)
}

func TestOnlyHealthChangesAreWritten(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.reserve(t, 1)
	version := func() (xmin string) {
		b.row(t, &xmin, "SELECT xmin::text FROM sandboxes")
		return xmin
	}
	before := version()
	require.NoError(t, b.SandboxesSeen(b.ctx, seen(b.id, 1, session.SandboxReady)))
	require.Equal(t, before, version())
	require.NoError(t, b.SandboxesSeen(b.ctx, seen(b.id, 1, session.SandboxUnhealthy)))
	require.NotEqual(t, before, version())
	require.NoError(t, b.SandboxesSeen(b.ctx, nil))
}

func TestSandboxesAreListedInPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 4 {
		b.id = b.session(t)
		b.reserve(t, 1)
	}
	b.reserve(t, 2)
	var got []session.SandboxKey
	for after := (session.SandboxKey{}); ; {
		rows, err := b.SandboxesPage(b.ctx, after, 2)
		require.NoError(t, err)
		for _, row := range rows {
			require.Equal(t, session.SandboxReady, row.Health)
			after = session.SandboxKey{SessionID: row.SessionID, Generation: row.Generation}
			got = append(got, after)
		}
		if len(rows) < 2 {
			break
		}
	}
	require.Len(t, got, 5)
	require.True(t, slices.IsSortedFunc(got, func(a, b session.SandboxKey) int {
		return cmp.Or(strings.Compare(a.SessionID, b.SessionID), cmp.Compare(a.Generation, b.Generation))
	}))
	unowned, err := b.SandboxesUnowned(b.ctx, append([]session.SandboxKey{{SessionID: b.id, Generation: 3}}, got...))
	require.NoError(t, err)
	require.Equal(t, []int{0}, unowned)

	abandoned, err := b.SandboxesAbandoned(b.ctx, 0, session.SandboxKey{}, 10)
	require.NoError(t, err)
	require.Len(t, abandoned, 1)
	require.EqualValues(t, 1, abandoned[0].Generation)
	abandoned, err = b.SandboxesAbandoned(b.ctx, time.Hour, session.SandboxKey{}, 10)
	require.NoError(t, err)
	require.Empty(t, abandoned, "it is young")
}

func TestGenerationIsReservedBeforeCreate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	requireCode(t, failure.IllegalState, b.SandboxRecord(b.ctx, b.id, 0, "sb", session.SandboxStarting, time.Now()))
	require.NoError(t, b.GenerationReserve(b.ctx, b.id, 1, "im-1"))
	require.NoError(t, b.GenerationReserve(b.ctx, b.id, 1, "im-1"), "twice is once")
	rows, err := b.SandboxesOpen(b.ctx, b.id)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Empty(t, rows[0].SandboxID)
	require.True(t, rows[0].Current)
	require.True(t, rows[0].Deadline.IsZero())
	s, err := b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Nil(t, s.Sandbox, "an intent is not a sandbox")

	deadline := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	require.NoError(t, b.SandboxRecord(b.ctx, b.id, 1, "sb-1", session.SandboxStarting, deadline))
	rows, err = b.SandboxesOpen(b.ctx, "")
	require.NoError(t, err)
	require.True(t, rows[0].ReadyAt.IsZero())
	require.NoError(t, b.SandboxRecord(b.ctx, b.id, 1, "sb-1", session.SandboxReady, deadline))
	rows, err = b.SandboxesOpen(b.ctx, "")
	require.NoError(t, err)
	require.False(t, rows[0].ReadyAt.IsZero())
	require.Equal(t, deadline, rows[0].Deadline)
	require.NoError(t, b.SandboxesSeen(b.ctx, seen(b.id, 1, session.SandboxUnhealthy)))
	s, err = b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, session.SandboxUnhealthy, s.Sandbox.Status)

	require.NoError(t, b.GenerationReserve(b.ctx, b.id, 2, "im-1"))
	requireCode(t, failure.IllegalState, b.GenerationReserve(b.ctx, b.id, 1, "im-1"))
	requireCode(t, failure.IllegalState, b.SandboxRecord(b.ctx, b.id, 1, "sb-late", session.SandboxReady, deadline))
	rows, err = b.SandboxesOpen(b.ctx, b.id)
	require.NoError(t, err)
	require.Len(t, rows, 2)
	require.Equal(t, []bool{false, true}, []bool{rows[0].Current, rows[1].Current})
	require.Equal(t, "sb-1", rows[0].SandboxID)

	require.NoError(t, b.SandboxEnd(b.ctx, b.id, 1, "lost"))
	require.NoError(t, b.SandboxEnd(b.ctx, b.id, 1, "again"))
	require.NoError(t, b.SandboxEnd(b.ctx, b.id, 7, "never was"))
	require.NoError(t, b.SandboxesSeen(b.ctx, seen(b.id, 1, session.SandboxReady)), "of one that has ended nothing changes")
	rows, err = b.SandboxesOpen(b.ctx, b.id)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.NoError(t, b.SandboxEnd(b.ctx, b.id, 2, "lost"))
	requireCode(t, failure.IllegalState, b.GenerationReserve(b.ctx, b.id, 2, "im-1"))
	requireCode(t, failure.IllegalState, b.SandboxRecord(b.ctx, b.id, 2, "sb-2", session.SandboxReady, deadline))
	requireCode(t, failure.NoSession, b.GenerationReserve(b.ctx, "ses_nobody", 1, "im-1"))
}

// TestSandboxWithUnsavedWorkIsNotAbandoned interrupts a restore that has reserved the next
// generation before it has saved the session's work in the previous one.
func TestSandboxWithUnsavedWorkIsNotAbandoned(t *testing.T) {
	t.Parallel()
	b := setup(t)
	abandoned := func() (generations []int64) {
		rows, err := b.SandboxesAbandoned(b.ctx, 0, session.SandboxKey{}, 10)
		require.NoError(t, err)
		for _, row := range rows {
			generations = append(generations, row.Generation)
		}
		return generations
	}
	b.running(t)
	b.transit(t, session.EventFail, "the snapshot was refused")
	b.transit(t, session.EventRecover, session.ReasonRequested)
	b.reserve(t, 2)
	require.Empty(t, abandoned(), "restoring")
	b.reserve(t, 3)
	require.Equal(t, []int64{2}, abandoned(), "the session has never worked in the second")
	b.transit(t, session.EventFail, "and again")
	require.Equal(t, []int64{2}, abandoned(), "in error")
	b.commit(t, "im-saved")
	b.sql(t, "UPDATE bundles SET generation = 1, checkpoint = true")
	require.Equal(t, []int64{2}, abandoned(), "after a checkpoint it has worked on")
	b.sql(t, "UPDATE bundles SET checkpoint = false")
	require.Equal(t, []int64{1, 2}, abandoned(), "it is saved")

	b.id = b.session(t)
	b.running(t)
	b.reserve(t, 2)
	require.Equal(t, []int64{1, 2, 1}, abandoned(), "one that runs without it does not need it")
	b.transit(t, session.EventStop, session.ReasonRequested)
	require.Equal(t, []int64{1, 2, 1, 2}, abandoned(), "an ended session needs nothing")
}
