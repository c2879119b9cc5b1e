package postgres_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/listing"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// command submits a command that must be accepted.
func (b *harness) command(t *testing.T, kind session.CommandKind, change ...func(*session.Command)) session.Commanded {
	t.Helper()
	c := session.Command{SessionID: b.id, Kind: kind}
	for _, f := range change {
		f(&c)
	}
	done, err := b.CommandSubmit(b.ctx, c)
	require.NoError(t, err)
	return done
}

func forced(c *session.Command) { c.Force = true }

// commandEvents returns the command events after a position, as "kind status reason".
func (b *harness) commandEvents(t *testing.T, after int64) (out []string) {
	t.Helper()
	for _, e := range b.events(t) {
		if e.Seq > after && e.Type == event.TypeCommand {
			var data event.CommandData
			require.NoError(t, json.Unmarshal(e.Data, &data))
			out = append(out, fmt.Sprintf("%s %s %s", data.Command.Kind, data.Command.Status, data.Command.Reason))
		}
	}
	return out
}

func (b *harness) pending(t *testing.T) (kinds []session.CommandKind) {
	t.Helper()
	s, err := b.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	for _, c := range s.Pending {
		kinds = append(kinds, c.Kind)
	}
	return kinds
}

func (b *harness) look(t *testing.T) session.Look {
	t.Helper()
	look, err := b.SessionLook(b.ctx, b.id, "w1")
	require.NoError(t, err)
	return look
}

func TestCommandIsPendingUntilTransition(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	before := b.position(t)
	first := b.command(t, session.CommandHibernate, func(c *session.Command) { c.RequestID = "mine-42" })
	require.True(t, first.Notify)
	require.Equal(t, session.CommandPending, first.Command.Status)
	require.Equal(t, []session.Command{*first.Command}, first.Session.Pending)

	again := b.command(t, session.CommandHibernate)
	require.Equal(t, first.Command.ID, again.Command.ID)
	require.Equal(t, []string{"hibernate pending "}, b.commandEvents(t, before), "a repeat changes nothing")
	forcedOne := b.command(t, session.CommandHibernate, forced)
	require.Equal(t, first.Command.ID, forcedOne.Command.ID)
	require.True(t, forcedOne.Command.Force)
	require.True(t, b.command(t, session.CommandHibernate).Command.Force, "force stays")
	require.Len(t, b.commandEvents(t, before), 2)

	list, _, err := b.SessionList(b.ctx, listing.Filter{Limit: 10})
	require.NoError(t, err)
	require.Len(t, list[0].Pending, 1)

	step := b.next(t, session.EventHibernate, session.ReasonRequested)
	step.Command = first.Command.ID
	require.NoError(t, b.TransitionRecord(b.ctx, step))
	require.NoError(t, b.TransitionRecord(b.ctx, step), "the workflow's task was lost after the record")
	request, err := b.CommandRequest(b.ctx, step.Command)
	require.NoError(t, err)
	require.Equal(t, "mine-42", request, "of the first request")
	request, err = b.CommandRequest(b.ctx, "cmd_unknown")
	require.NoError(t, err)
	require.Empty(t, request)
	require.Equal(t, []string{"hibernate pending ", "hibernate pending ", "hibernate applied "}, b.commandEvents(t, before))
	require.Empty(t, b.pending(t))
}

// A workflow that has read a command executes it only if it is still pending.
func TestSupersededCommandIsNotApplied(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	hibernate := b.command(t, session.CommandHibernate)
	require.Len(t, b.look(t).Commands, 1)
	before := b.position(t)
	wake := b.command(t, session.CommandWake)
	require.Equal(t, session.CommandApplied, wake.Command.Status)
	require.True(t, wake.Notify, "the workflow has read the other one")
	require.Equal(t, []string{"hibernate superseded wake", "wake applied "}, b.commandEvents(t, before))
	step := b.next(t, session.EventHibernate, session.ReasonRequested)
	step.Command = hibernate.Command.ID
	requireCode(t, failure.IllegalState, b.TransitionRecord(b.ctx, step))
	require.Empty(t, b.look(t).Commands)
	require.Nil(t, b.command(t, session.CommandWake).Command, "no command is pending")
}

func TestStopEndsEveryOtherCommand(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	b.command(t, session.CommandSync)
	b.command(t, session.CommandHibernate)
	before := b.position(t)
	stop := b.command(t, session.CommandStop)
	require.True(t, stop.Notify, "although another signal is unanswered")
	require.False(t, b.command(t, session.CommandStop).Notify, "the relay sends it again")
	require.Equal(t, []string{"sync superseded stop", "hibernate superseded stop", "stop pending "}, b.commandEvents(t, before))
	_, err := b.CommandSubmit(b.ctx, session.Command{SessionID: b.id, Kind: session.CommandHibernate})
	requireCode(t, failure.IllegalState, err)

	b.transit(t, session.EventStop, session.ReasonRequested)
	require.Contains(t, b.commandEvents(t, before), "stop applied ")
	types := b.types(t, before)
	require.Equal(t, event.TypeStatus, types[len(types)-1], "nothing follows the last status")
	require.Nil(t, b.command(t, session.CommandStop).Command)
	_, err = b.CommandSubmit(b.ctx, session.Command{SessionID: b.id, Kind: session.CommandWake})
	requireCode(t, failure.Terminated, err)
	_, err = b.CommandSubmit(b.ctx, session.Command{SessionID: "ses_nobody", Kind: session.CommandStop})
	requireCode(t, failure.NoSession, err)
}

// The workflow task that recorded the transition was lost, and the next one decides to run a
// prompt.
func TestPromptIsClaimedInRunningSessionOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	prompt := b.submit(t, "1")
	claim := func() error {
		_, err := b.RunBegin(b.ctx, b.id, prompt, session.NewID(session.RunPrefix), 1)
		return err
	}
	b.command(t, session.CommandSync)
	requireCode(t, failure.IllegalState, claim())
	look := b.look(t)
	require.NoError(t, b.CommandEnd(b.ctx, b.id, look.Commands[0].ID, session.CommandApplied, ""))
	require.NoError(t, b.CommandEnd(b.ctx, b.id, look.Commands[0].ID, session.CommandRefused, "late"), "the first end counts")
	b.transit(t, session.EventHibernate, session.ReasonIdle)
	requireCode(t, failure.IllegalState, claim())
	p, err := b.PromptGet(b.ctx, b.id, prompt)
	require.NoError(t, err)
	require.Equal(t, session.PromptQueued, p.Status)
}

// The workflow task that claimed a prompt was lost, and the next one decides to hibernate.
func TestSessionDoesNotHibernateInTurn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	runID := b.begin(t, b.submit(t, "1"))
	step := b.next(t, session.EventHibernate, session.ReasonRequested)
	requireCode(t, failure.IllegalState, b.TransitionRecord(b.ctx, step))
	_, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Outcome: session.OutcomeCompleted})
	require.NoError(t, err)
	require.NoError(t, b.TransitionRecord(b.ctx, step))
}

func TestAbortNeverHitsNextPrompt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	require.Nil(t, b.command(t, session.CommandAbort).Command, "nothing runs")
	run1 := b.begin(t, b.submit(t, "1"))
	before := b.position(t)
	abort := b.command(t, session.CommandAbort)
	require.Equal(t, run1, abort.Command.RunID, "the run at the time of the request")
	require.True(t, abort.Notify)
	_, err := b.RunEnd(b.ctx, run.Ending{RunID: run1, Outcome: session.OutcomeCompleted})
	require.NoError(t, err)
	require.Equal(t, []string{"abort pending ", "abort superseded run_ended"}, b.commandEvents(t, before))

	run2 := b.begin(t, b.submit(t, "2"))
	require.Empty(t, b.look(t).Commands)
	late := b.command(t, session.CommandAbort, func(c *session.Command) { c.RunID = run1 })
	require.Nil(t, late.Command, "that run has ended")
	_, err = b.CommandSubmit(b.ctx, session.Command{SessionID: b.id, Kind: session.CommandAbort, RunID: session.NewID(session.RunPrefix)})
	requireCode(t, failure.NoRun, err)
	before = b.position(t)
	require.Equal(t, run2, b.command(t, session.CommandAbort, func(c *session.Command) { c.RunID = run2 }).Command.RunID)
	_, err = b.RunEnd(b.ctx, run.Ending{RunID: run2, Outcome: session.OutcomeCancelled, Reason: session.ReasonAborted})
	require.NoError(t, err)
	require.Equal(t, []string{"abort pending ", "abort applied "}, b.commandEvents(t, before))
}

// The prompt was requeued before its agent received it: the abort still applies to the prompt.
func TestAbortedPromptIsNotRunAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	prompt := b.submit(t, "1")
	runID := b.begin(t, prompt)
	before := b.position(t)
	b.command(t, session.CommandAbort)
	queued, err := b.RunReturn(b.ctx, runID, session.ReasonSandboxLost, false)
	require.NoError(t, err)
	require.False(t, queued)
	p, err := b.PromptGet(b.ctx, b.id, prompt)
	require.NoError(t, err)
	require.Equal(t, session.PromptCancelled, p.Status)
	require.Equal(t, session.ReasonAborted, p.Reason)
	require.Equal(t, []string{"abort pending ", "abort applied "}, b.commandEvents(t, before))
}

func TestNewestRevertCounts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	var prompts []string
	for i := range 2 {
		prompts = append(prompts, b.submit(t, fmt.Sprint(i)))
		_, err := b.RunEnd(b.ctx, run.Ending{RunID: b.begin(t, prompts[i]), Outcome: session.OutcomeCompleted})
		require.NoError(t, err)
	}
	revert := func(id string) func(*session.Command) { return func(c *session.Command) { c.PromptID = id } }
	before := b.position(t)
	b.command(t, session.CommandRevert, revert(prompts[1]))
	newest := b.command(t, session.CommandRevert, revert(prompts[0]))
	require.Equal(t, prompts[0], newest.Command.PromptID)
	require.Equal(t, []string{"revert pending ", "revert superseded revert", "revert pending "}, b.commandEvents(t, before))
	_, err := b.CommandSubmit(b.ctx, session.Command{SessionID: b.id, Kind: session.CommandRevert, PromptID: "nothing"})
	requireCode(t, failure.NoPrompt, err)
	queued := b.submit(t, "queued")
	_, err = b.CommandSubmit(b.ctx, session.Command{SessionID: b.id, Kind: session.CommandRevert, PromptID: queued})
	requireCode(t, failure.IllegalState, err)
}

// A session that moves to a new sandbox wakes again even if its workflow was lost while it
// hibernated.
func TestRestartIsKeptAsWake(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	restart := b.command(t, session.CommandRestart)
	step := b.next(t, session.EventHibernate, session.ReasonRestart)
	step.Command = restart.Command.ID
	require.NoError(t, b.TransitionRecord(b.ctx, step))
	require.Equal(t, []session.CommandKind{session.CommandWake}, b.pending(t))
	b.transit(t, session.EventSaved, session.ReasonRestart)
	before := b.position(t)
	b.transit(t, session.EventWake, session.ReasonRestart)
	b.reserve(t, 2)
	b.transit(t, session.EventReady, "")
	require.Equal(t, []string{"wake applied restart"}, b.commandEvents(t, before))
	b.transit(t, session.EventHibernate, session.ReasonLifetime)
	require.Equal(t, []session.CommandKind{session.CommandWake}, b.pending(t))
	require.Equal(t, session.CommandApplied, b.command(t, session.CommandHibernate).Command.Status)
	require.Empty(t, b.pending(t), "a hibernate while it moves ends the move")
}

// At most one signal is outstanding, and work that waits for a turn needs none.
func TestSignalsAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	submit := func() bool {
		p, _, _, err := b.PromptSubmit(b.ctx, session.Prompt{ID: session.NewID(session.PromptPrefix), SessionID: b.id, Content: "x"})
		require.NoError(t, err)
		return p.Notify
	}
	settings := func() bool {
		s, err := b.SessionPatch(b.ctx, b.id, session.Patch{IdleTimeout: new(time.Hour)})
		require.NoError(t, err)
		return s.Notify
	}
	require.True(t, submit())
	for range 10 {
		require.False(t, submit(), "the first signal is not answered yet")
		require.False(t, settings())
		require.False(t, b.command(t, session.CommandWake).Notify)
	}
	b.sql(t, "UPDATE sessions SET signalled_at = now() - interval '1 minute' WHERE id = $1", b.id)
	require.True(t, submit(), "it was lost, as it seems")
	look := b.look(t)
	require.EqualValues(t, 12, look.Queued)
	require.Len(t, look.Waiting, 12)
	require.Equal(t, time.Hour, look.IdleTimeout)
	require.True(t, settings())
	require.False(t, settings())

	b.begin(t, look.Waiting[0].ID) // also answers the signal
	for range 10 {
		require.False(t, submit(), "the workflow looks at the end of the turn")
		require.False(t, settings())
		require.False(t, b.command(t, session.CommandHibernate).Notify)
		b.command(t, session.CommandWake)
		b.look(t)
	}
	require.True(t, b.command(t, session.CommandHibernate, forced).Notify)
	require.False(t, b.command(t, session.CommandAbort).Notify, "that signal is not answered yet")
	b.look(t)
	require.True(t, b.command(t, session.CommandStop).Notify)
}

func TestSessionLookListsFirstPrompts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var first string
	for i := range session.MaxWaitingSeen + 5 {
		if id := b.submit(t, "x"); i == 0 {
			first = id
		}
	}
	look := b.look(t)
	require.Len(t, look.Waiting, session.MaxWaitingSeen)
	require.EqualValues(t, session.MaxWaitingSeen+5, look.Queued)
	require.Equal(t, first, look.Waiting[0].ID)
}

func TestUnreadCommandsAreFound(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	overdue := func() []backlog.Overdue {
		all, err := b.CommandsOverdue(b.ctx, time.Hour, 10)
		require.NoError(t, err)
		return all
	}
	b.command(t, session.CommandHibernate)
	require.Empty(t, overdue(), "it is young")
	b.sql(t, "UPDATE session_commands SET created_at = now() - interval '2 hours'")
	require.Equal(t, []backlog.Overdue{{SessionID: b.id}}, overdue())
	b.look(t)
	require.Equal(t, []backlog.Overdue{{SessionID: b.id, HeardBy: "w1"}}, overdue())
	b.command(t, session.CommandHibernate, forced)
	require.Equal(t, []backlog.Overdue{{SessionID: b.id}}, overdue(), "it has changed")
	b.command(t, session.CommandStop)
	b.sql(t, "UPDATE session_commands SET created_at = now() - interval '2 hours'")
	require.Equal(t, []backlog.Overdue{{SessionID: b.id, Stop: true}}, overdue())
	b.transit(t, session.EventStop, session.ReasonRequested)
	require.Empty(t, overdue())
}

func TestEndedCommandsAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	for range session.MaxCommandsKept {
		b.command(t, session.CommandHibernate)
		b.command(t, session.CommandWake)
	}
	require.LessOrEqual(t, b.number(t, "SELECT count(*) FROM session_commands WHERE session_id = $1"), int64(session.MaxCommandsKept+2))
}

// A workflow that announced its completion may not have completed: any later write shows that it is
// open.
func TestWorkflowRecordsMarkItOpen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	loaded := func() bool {
		s, err := b.SessionGet(b.ctx, b.id)
		require.NoError(t, err)
		return s.Loaded
	}
	b.running(t)
	for name, record := range []func(){
		func() { b.look(t) },
		func() { b.begin(t, b.submit(t, "1")) },
		func() { b.transit(t, session.EventFail, "why") },
	} {
		require.NoError(t, b.SessionClose(b.ctx, b.id))
		require.False(t, loaded())
		record()
		require.True(t, loaded(), name)
	}
}

// number returns the result of a query for the session.
func (b *harness) number(t *testing.T, query string) (n int64) {
	t.Helper()
	conn, err := pgx.Connect(b.ctx, b.url)
	require.NoError(t, err)
	defer conn.Close(b.ctx)
	require.NoError(t, conn.QueryRow(b.ctx, query, b.id).Scan(&n))
	return n
}

// A changed setting is not a command: if its signal is lost, no pending command causes another one.
func TestUnansweredSignalIsFound(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	overdue := func() []backlog.Overdue {
		all, err := b.CommandsOverdue(b.ctx, 0, 10)
		require.NoError(t, err)
		return all
	}
	idle := time.Minute
	patched, err := b.SessionPatch(b.ctx, b.id, session.Patch{IdleTimeout: &idle})
	require.NoError(t, err)
	require.True(t, patched.Notify)
	require.Empty(t, overdue(), "it is young")
	b.sql(t, "UPDATE sessions SET signalled_at = now() - interval '31 seconds'")
	require.Equal(t, []backlog.Overdue{{SessionID: b.id}}, overdue())
	b.command(t, session.CommandHibernate)
	b.sql(t, "UPDATE session_commands SET created_at = now() - interval '1 minute'")
	require.Len(t, overdue(), 1, "once, with its command")
	b.sql(t, "UPDATE sessions SET loaded = false")
	b.sql(t, "UPDATE session_commands SET status = 'applied', ended_at = now()")
	require.Empty(t, overdue(), "no workflow is open, and one that starts reads the settings")
	b.sql(t, "UPDATE session_commands SET status = 'pending', ended_at = NULL")
	b.look(t)
	require.Equal(t, []backlog.Overdue{{SessionID: b.id, HeardBy: "w1"}}, overdue(), "the command is pending")
}

func TestSessionInErrorContinuesWithoutItsFiles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	b.transit(t, session.EventFail, "the snapshot is damaged")
	before := b.position(t)
	b.command(t, session.CommandRecover)
	drop := b.command(t, session.CommandDrop)
	require.Nil(t, b.command(t, session.CommandRecover).Command, "the drop recovers it")
	step := b.next(t, session.EventRecover, session.ReasonDropped)
	step.Command = drop.Command.ID
	require.NoError(t, b.TransitionRecord(b.ctx, step))
	require.Equal(t, []string{
		"recover pending ", "recover superseded environment/terminate", "environment/terminate pending ", "environment/terminate applied ",
	}, b.commandEvents(t, before))
}
