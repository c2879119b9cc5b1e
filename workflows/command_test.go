package workflows_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// submit stores a command as Postgres does, and reports whether the workflow must be signalled.
func (w *world) submit(c session.Command) (accepted, notify bool) {
	defer w.nudge()
	p := session.Pending{Status: w.state, Reason: w.reason, Lazy: w.lazy, Commands: w.pendingCommands()}
	if run := w.openRun(); run != nil {
		p.RunID = run.id
	}
	v := session.Judge(c.Kind, p)
	if v.Refused != nil {
		w.say("%s is refused: %s", c.Kind, v.Refused.Message)
		return false, false
	}
	ended, forced := false, false
	for i := range w.commands {
		old := &w.commands[i]
		if old.Status == session.CommandPending && slices.Contains(v.Supersedes, old.Kind) {
			w.endCommand(old, session.CommandSuperseded, string(c.Kind))
			ended, forced = true, forced || old.Force
		}
	}
	if v.Already {
		return true, ended && w.mark(forced)
	}
	if c.Kind == session.CommandAbort {
		c.RunID = p.RunID
	}
	for i := range w.commands {
		old := &w.commands[i]
		if old.Status != session.CommandPending || old.Kind != c.Kind {
			continue
		}
		if old.PromptID == c.PromptID && old.RunID == c.RunID {
			changed := c.Force && !old.Force
			old.Force = old.Force || c.Force
			return true, changed && w.mark(true)
		}
		c.Force = c.Force || old.Force
		w.endCommand(old, session.CommandSuperseded, string(c.Kind))
	}
	c.ID, c.Status = fmt.Sprintf("cmd_%d", len(w.commands)+1), session.CommandPending
	w.commands = append(w.commands, c)
	if c.Kind == session.CommandStop {
		return true, true
	}
	return true, w.mark(forced || c.Force || c.Kind == session.CommandAbort)
}

// mark reports whether new work must be signalled, and records the signal. Work that does not
// affect a running turn waits for the end of the turn.
func (w *world) mark(urgent bool) bool {
	if w.signalled || w.state.Final() || !urgent && w.openRun() != nil && !w.openRun().parked {
		return false
	}
	w.signalled = true
	return true
}

func (w *world) endCommand(c *session.Command, status session.CommandStatus, reason string) {
	c.Status, c.Reason = status, reason
	w.say("%s is %s%s", c.Kind, status, because(reason))
}

func (w *world) pendingCommands() (pending []session.Command) {
	for _, c := range w.commands {
		if c.Status == session.CommandPending {
			pending = append(pending, c)
		}
	}
	return pending
}

func (w *world) settleCommands(t session.Transition) {
	var ended []session.Command
	for i := range w.commands {
		c := &w.commands[i]
		if c.Status != session.CommandPending {
			continue
		}
		if status, reason := c.EndedBy(t); status != session.CommandPending {
			w.endCommand(c, status, reason)
			ended = append(ended, *c)
		}
	}
	left := w.pendingCommands()
	if !w.oldSignals && t.Moves(ended) && !slices.ContainsFunc(left, func(c session.Command) bool {
		return c.Kind == session.CommandWake || c.Kind == session.CommandStop
	}) {
		w.commands = append(w.commands, session.Command{
			ID: fmt.Sprintf("cmd_%d", len(w.commands)+1), Kind: session.CommandWake, Status: session.CommandPending, Reason: t.Reason,
		})
	}
}

func (w *world) endAborts(runID string, outcome session.Outcome, reason string) {
	for i := range w.commands {
		if c := &w.commands[i]; c.Status == session.CommandPending && c.RunID == runID {
			status, because := c.EndedByRun(outcome, reason)
			w.endCommand(c, status, because)
		}
	}
}

// aborting reports whether an abort of a run is pending.
func (w *world) aborting(runID string) bool {
	return slices.ContainsFunc(w.pendingCommands(), func(c session.Command) bool { return c.Kind == session.CommandAbort && c.RunID == runID })
}

// waiting returns the pending commands in the workflow's form.
func (w *world) waiting() (out []activities.PendingCommand) {
	for _, c := range w.pendingCommands() {
		out = append(out, activities.PendingCommand{ID: c.ID, Kind: c.Kind, Force: c.Force, PromptID: c.PromptID, RunID: c.RunID, Reason: c.Reason})
	}
	return out
}

func (f *fakes) ReadWaiting(ctx context.Context, _ activities.SessionRef) (activities.Waiting, error) {
	return take(ctx, f, "ReadWaiting", func(w *world) (activities.Waiting, error) {
		w.reads++
		return w.look(), nil
	})
}

// look returns the pending commands and prompts, and marks them as read by the workflow.
func (w *world) look() activities.Waiting {
	w.signalled, w.loaded = false, true
	out := activities.Waiting{Commands: w.waiting(), IdleTimeout: w.idleTimeout}
	for _, p := range w.prompts {
		if p.status == session.PromptQueued && !w.held {
			out.Queued++
			if out.Queued <= session.MaxWaitingSeen {
				out.Next = append(out.Next, p.QueuedPrompt)
			}
		}
	}
	return out
}

func (f *fakes) EndCommand(ctx context.Context, in activities.CommandEnding) error {
	_, err := take(ctx, f, "EndCommand", func(w *world) (nothing, error) {
		for i := range w.commands {
			if c := &w.commands[i]; c.ID == in.CommandID && c.Status == session.CommandPending {
				w.endCommand(c, in.Status, in.Reason)
			}
		}
		return nothing{}, nil
	})
	return err
}

func (f *fakes) RecordStop(ctx context.Context, in activities.StopRequest) (string, error) {
	return take(ctx, f, "RecordStop", func(w *world) (string, error) {
		w.submit(session.Command{Kind: session.CommandStop, Reason: in.Reason})
		for _, c := range w.pendingCommands() {
			if c.Kind == session.CommandStop {
				return c.Reason, nil
			}
		}
		return in.Reason, nil
	})
}

// command submits a command and signals the workflow, as the api does.
func (c *cast) command(kind session.CommandKind, force bool, promptID string) {
	w, s := c.stage.world, c.stage
	_, notify := w.submit(session.Command{Kind: kind, Force: force, PromptID: promptID})
	if !notify && (s.open() || len(w.pendingCommands()) == 0) {
		return
	}
	w.signals++
	name := contract.SignalCommands
	if kind == session.CommandStop {
		name = contract.SignalStop
	}
	s.signal(name, nil, true)
}

// oldSignal sends a command in the way of an earlier version of the api.
func (c *cast) oldSignal(kind session.CommandKind, force bool, promptID string) {
	s := c.stage
	switch kind {
	case session.CommandWake:
		s.signal(contract.SignalWake, nil, true)
	case session.CommandStop:
		s.signal(contract.SignalStop, nil, true)
	case session.CommandRecover:
		s.signal(contract.SignalRecover, nil, true)
	case session.CommandHibernate, session.CommandDrop:
		c.signal(contract.SignalHibernate, contract.HibernateSignal{Force: force, Drop: kind == session.CommandDrop})
	case session.CommandRestart:
		c.signal(contract.SignalRestart, contract.RestartSignal{Force: force})
	case session.CommandSync:
		c.signal(contract.SignalSync, nil)
	case session.CommandRevert:
		s.signal(contract.SignalRevert, contract.RevertSignal{PromptID: promptID, Force: force}, true)
	case session.CommandAbort:
		c.signal(contract.SignalAbort, contract.AbortSignal{})
	}
}

// storm sends n concurrent client requests that cancel each other out.
func (c *cast) storm(n int) error {
	w := c.stage.world
	for i := range n {
		var err error
		switch i % 5 {
		case 0:
			c.command(session.CommandHibernate, false, "")
		case 1:
			c.command(session.CommandWake, false, "")
		case 2:
			c.command(session.CommandSync, false, "")
		case 3:
			id := fmt.Sprintf("s%d", len(w.prompts))
			err = c.prompt(id, nil)
			w.end(w.prompt(id), session.OutcomeCancelled, session.ReasonWithdrawn)
		case 4:
			w.idleTimeout++
			c.settings()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// settings notifies the workflow of a changed idle timeout, as the api does.
func (c *cast) settings() {
	if c.stage.world.mark(false) {
		c.stage.world.signals++
		c.stage.signal(contract.SignalCommands, nil, false)
	}
}

// TestTenThousandCommandsInOneTurn checks that requests during a turn neither exhaust the signal
// limit of the workflow run nor delay a stop.
func TestTenThousandCommandsInOneTurn(t *testing.T) {
	t.Parallel()
	script := &strings.Builder{}
	fmt.Fprintln(script, "create lifetime=240h\nprompt p1 takes=48h\nwait 10s")
	for range 101 {
		fmt.Fprint(script, "storm 100\nwait 100ms\n")
	}
	fmt.Fprintln(script, "\nstop\nwait 1m")
	transcript, c := play(t, script.String())
	w := c.stage.world
	require.Empty(t, w.violations)
	require.Equal(t, session.Terminated, w.state, "%.2000s", transcript)
	require.LessOrEqual(t, w.signals, 10, "a turn ignores irrelevant commands")
	require.Equal(t, session.PromptCancelled, w.prompt("p1").status)
}

// TestSignalsInTurnAreAnsweredAtIntervals checks that the intervals apply to signals of every
// sender.
func TestSignalsInTurnAreAnsweredAtIntervals(t *testing.T) {
	t.Parallel()
	script := &strings.Builder{}
	fmt.Fprintln(script, "create lifetime=240h\nprompt p1 takes=2h\nwait 10s")
	for range 300 {
		fmt.Fprint(script, "nudge\nwait 10s\n")
	}
	fmt.Fprintln(script, "\nabort\nwait 1m")
	_, c := play(t, script.String())
	w := c.stage.world
	require.Empty(t, w.violations)
	require.Less(t, w.reads, 200, "of 300 signals")
	require.Equal(t, session.PromptCancelled, w.prompt("p1").status, "the abort takes effect all the same")
}

// TestHibernationReadsPendingWorkBeforeAndAfterItsSave checks that a save does not wait for a second read: the pending work was
// read when the attendance ended, and is read again once the session is saved.
func TestHibernationReadsPendingWorkBeforeAndAfterItsSave(t *testing.T) {
	t.Parallel()
	reads := func(script string) int {
		_, c := play(t, script)
		require.Empty(t, c.stage.world.violations)
		return c.stage.world.reads
	}
	const turn = "create attend=20s\nprompt p1\nwait 10s"
	require.Equal(t, 2, reads(turn+"\n\nhibernate\nwait 10s")-reads(turn))
}
