package postgres

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// signalAgain is the time without a reaction of the workflow after which a request signals it
// again. Relays do so sooner. A client that never stops submitting thus causes at most 2,880
// signals during a turn of a day.
const signalAgain = 30 * time.Second

// CommandSubmit validates a command under the session's lock and stores it as pending, with an
// event. A command is merged with a pending one of the same kind, and ends the commands that it
// supersedes. The command of the result is nil if there was nothing to do. Errors:
// session_not_found, session_terminated, session_in_error, illegal_state; prompt_not_found,
// bundle_not_found and no_bundle_there for a revert; run_not_found for an abort.
func (db *DB) CommandSubmit(ctx context.Context, c session.Command) (result session.Commanded, err error) {
	var d deciding
	read := func(in *lookups) error { return d.readCommands(ctx, db.q, c.SessionID, in) }
	err = db.inSessionWith(ctx, "submit a command", c.SessionID, read, func(s *sessionTx) error {
		pending := s.pending(&d)
		already, err := s.commandTarget(ctx, db, &c, pending)
		if err != nil {
			return err
		}
		verdict := session.Judge(c.Kind, pending)
		if verdict.Refused != nil {
			return verdict.Refused
		}
		verdict.Already = verdict.Already || already
		if err := s.commandAccept(ctx, c, pending, verdict, &result); err != nil {
			return err
		}
		var in lookups
		return in.also(ctx, s.Conn, func(in *lookups) (err error) {
			result.Session, err = db.sessionGet(ctx, in, c.SessionID)
			return err
		})
	})
	if err != nil {
		return session.Commanded{}, err
	}
	return result, nil
}

// commandable reads the rows that decide whether a command is accepted.
func (s *sessionTx) commandable(ctx context.Context) (session.Pending, error) {
	var d deciding
	var in lookups
	err := in.also(ctx, s.Conn, func(in *lookups) error { return d.readCommands(ctx, s.q, s.row.ID, in) })
	return s.pending(&d), err
}

// pending returns what decides whether a command is accepted.
func (s *sessionTx) pending(d *deciding) session.Pending {
	return session.Pending{
		Status: session.State(s.row.Status), Reason: s.row.StatusReason, Lazy: s.row.Lazy,
		RunID: d.run.ID, Parked: d.run.ParkedAt != nil, Commands: d.commands,
	}
}

// commandTarget checks the target of a command, and sets the run of an abort. It reports whether
// the run to interrupt has ended.
func (s *sessionTx) commandTarget(ctx context.Context, db *DB, c *session.Command, p session.Pending) (already bool, err error) {
	if p.Status.Final() {
		return false, nil // refused whatever its target
	}
	switch c.Kind {
	case session.CommandRevert, session.CommandRevertFiles:
		return false, s.revertTarget(ctx, db, c, p)
	case session.CommandAbort:
		if c.RunID == "" || c.RunID == p.RunID || c.RunID == session.RunOf(p.RunID) {
			c.RunID = p.RunID
			return false, nil
		}
		run, err := s.q.RunGet(ctx, s, c.RunID)
		if isNoRows(err) || err == nil && run.SessionID != s.row.ID {
			return false, noRun(c.RunID)
		}
		return true, err
	}
	return false, nil
}

// commandAccept stores the changes of an accepted command.
func (s *sessionTx) commandAccept(ctx context.Context, c session.Command, p session.Pending, v session.CommandVerdict, result *session.Commanded) error {
	ended, err := s.commandsEnd(ctx, p.Commands, func(old session.Command) (session.CommandStatus, string) {
		if slices.Contains(v.Supersedes, old.Kind) {
			return session.CommandSuperseded, string(c.Kind)
		}
		return session.CommandPending, ""
	})
	if err != nil || v.Already && len(ended) == 0 {
		return err
	}
	c.Status, c.CreatedAt, c.Reason = session.CommandPending, s.now, text(c.Reason)
	if v.Already {
		c.Status, c.EndedAt = session.CommandApplied, s.now
	}
	changed := true
	i := slices.IndexFunc(p.Commands, func(old session.Command) bool { return old.Kind == c.Kind })
	switch {
	case i < 0 || v.Already:
		c, err = s.commandInsert(ctx, c)
	case p.Commands[i].PromptID != c.PromptID || p.Commands[i].BundleID != c.BundleID || p.Commands[i].RunID != c.RunID:
		// The commands differ: the newest one counts.
		c.Force = c.Force || p.Commands[i].Force && c.Kind != session.CommandAbort
		c, err = s.commandReplace(ctx, p.Commands[i], c)
	case c.Force && !p.Commands[i].Force:
		c, err = s.commandForce(ctx, p.Commands[i], c.Reason)
	default:
		c, changed = p.Commands[i], false
	}
	if err != nil {
		return err
	}
	result.Command = &c
	// A running turn reacts only to commands that interrupt it. A parked turn is not running.
	forced := func(c session.Command) bool { return c.Force }
	urgent := p.Parked || c.Force || c.Kind == session.CommandAbort || slices.ContainsFunc(ended, forced)
	switch {
	case c.Kind == session.CommandStop && changed:
		result.Notify = true // once in the session's life, regardless of earlier signals
	case changed:
		result.Notify = s.shouldSignal() && (urgent || p.RunID == "")
	default:
		result.Notify = s.row.SignalledAt != nil && s.shouldSignal()
	}
	return s.signalled(ctx, result.Notify)
}

// shouldSignal reports whether the workflow has reacted to the last signal, or is overdue. A caller
// that signals records that with signalled, so that at most one signal is outstanding.
func (s *sessionTx) shouldSignal() bool {
	return s.row.SignalledAt == nil || s.row.SignalledAt.Before(s.now.Add(-signalAgain))
}

func (s *sessionTx) signalled(ctx context.Context, yes bool) error {
	if !yes {
		return nil
	}
	return s.q.SessionSignalled(ctx, &s.later, &dbsqlc.SessionSignalledParams{ID: s.row.ID, At: s.now})
}

func (s *sessionTx) commandInsert(ctx context.Context, c session.Command) (session.Command, error) {
	row, err := s.commandRow(ctx, c)
	if err != nil {
		return c, err
	}
	return commandOf(row), nil
}

func (s *sessionTx) commandRow(ctx context.Context, c session.Command) (dbsqlc.SessionCommand, error) {
	params := &dbsqlc.CommandInsertParams{
		ID: session.NewID(session.CommandPrefix), SessionID: s.row.ID, Kind: string(c.Kind), Force: c.Force,
		PromptID: c.PromptID, BundleID: c.BundleID, RunID: c.RunID, Status: string(c.Status), Reason: c.Reason, CreatedAt: s.now, RequestID: c.RequestID,
	}
	if c.Status != session.CommandPending {
		params.EndedAt = &s.now
	}
	row, err := s.q.CommandInsert(ctx, s, params)
	if err != nil {
		return row, err
	}
	err = s.q.CommandsForget(ctx, &s.later, &dbsqlc.CommandsForgetParams{SessionID: s.row.ID, Kept: session.MaxCommandsKept})
	return row, cmp.Or(err, s.commandEvent(row))
}

func (s *sessionTx) commandReplace(ctx context.Context, old, c session.Command) (session.Command, error) {
	if _, err := s.commandEnd(ctx, old.ID, session.CommandSuperseded, string(c.Kind)); err != nil {
		return c, err
	}
	return s.commandInsert(ctx, c)
}

func (s *sessionTx) commandForce(ctx context.Context, old session.Command, reason string) (session.Command, error) {
	row, err := s.q.CommandForce(ctx, s, &dbsqlc.CommandForceParams{ID: old.ID, Reason: reason})
	if err != nil {
		return old, err
	}
	return commandOf(row), s.commandEvent(row)
}

func (s *sessionTx) commandEnd(ctx context.Context, id string, status session.CommandStatus, reason string) (session.Command, error) {
	row, err := s.q.CommandEnd(ctx, s, &dbsqlc.CommandEndParams{ID: id, Status: string(status), Reason: text(reason), At: s.now})
	if err != nil {
		return session.Command{}, err
	}
	return commandOf(row), s.commandEvent(row)
}

func (s *sessionTx) commandEvent(row dbsqlc.SessionCommand) error {
	return s.add(event.TypeCommand, row.RunID, event.CommandData{Command: resource.Command(commandOf(row))})
}

// commandsEnd ends the pending commands to which verdict gives another status, and returns them.
func (s *sessionTx) commandsEnd(ctx context.Context, pending []session.Command, verdict func(session.Command) (session.CommandStatus, string)) ([]session.Command, error) {
	var ended []session.Command
	for _, c := range pending {
		status, reason := verdict(c)
		if status == session.CommandPending {
			continue
		}
		switch c, err := s.commandEnd(ctx, c.ID, status, reason); {
		case err == nil:
			ended = append(ended, c)
		case !isNoRows(err): // an abort may have ended together with its run in this transaction
			return nil, err
		}
	}
	return ended, nil
}

// commandsTransit ends the commands that a transition ends. If the session must wake again
// immediately, the wake is stored as a command, so that it is not lost with the workflow.
func (s *sessionTx) commandsTransit(ctx context.Context, t session.Transition, pending []session.Command) error {
	ended, err := s.commandsEnd(ctx, pending, func(c session.Command) (session.CommandStatus, string) { return c.EndedBy(t) })
	if err != nil || !t.Moves(ended) {
		return err
	}
	for _, c := range pending {
		if c.Kind == session.CommandWake || c.Kind == session.CommandStop {
			return nil
		}
	}
	reason := t.Reason
	if reason == session.ReasonLost {
		reason = session.ReasonRestart
	}
	_, err = s.commandInsert(ctx, session.Command{Kind: session.CommandWake, Status: session.CommandPending, Reason: reason})
	return err
}

// abortsEnd ends the aborts of a run that has ended.
func (s *sessionTx) abortsEnd(ctx context.Context, runID string, outcome session.Outcome, reason string) (int, error) {
	rows, err := s.abortsClose(ctx, s, runID, outcome, reason)
	if err != nil {
		return 0, err
	}
	for _, row := range rows {
		if err := s.commandEvent(row); err != nil {
			return 0, err
		}
	}
	return len(rows), nil
}

func (s *sessionTx) abortsClose(ctx context.Context, tx dbsqlc.DBTX, runID string, outcome session.Outcome, reason string) ([]dbsqlc.SessionCommand, error) {
	status, because := session.Command{Kind: session.CommandAbort}.EndedByRun(outcome, reason)
	return s.q.CommandsEndAborts(ctx, tx, &dbsqlc.CommandsEndAbortsParams{
		SessionID: s.row.ID, RunID: runID, Status: string(status), Reason: because, At: s.now,
	})
}

// CommandEnd ends a command that a workflow has executed, or could not execute, without a
// transition. It does not change a command that has ended.
func (db *DB) CommandEnd(ctx context.Context, sessionID, commandID string, status session.CommandStatus, reason string) error {
	return db.inSession(ctx, "end a command", sessionID, func(s *sessionTx) error {
		_, err := s.commandEnd(ctx, commandID, status, reason)
		if isNoRows(err) {
			return nil
		}
		return err
	})
}

// CommandRequest returns the id of the request that submitted a command; empty if no client did, or
// if the command is no longer stored.
func (db *DB) CommandRequest(ctx context.Context, commandID string) (string, error) {
	id, err := db.q.CommandRequest(ctx, db.pool, commandID)
	if isNoRows(err) {
		return "", nil
	}
	return id, fault("read a command", err)
}

// SessionLook returns the pending commands and prompts of a session, and records that the workflow
// run has read them.
func (db *DB) SessionLook(ctx context.Context, sessionID, workflowRunID string) (look session.Look, err error) {
	var waits looking
	read := func(in *lookups) error { return waits.read(ctx, db.q, in, sessionID) }
	err = db.inSessionWith(ctx, "read pending work", sessionID, read, func(s *sessionTx) error {
		look = waits.found(s)
		return s.recordRead(ctx, workflowRunID)
	})
	return look, err
}

// looking reads the pending commands and prompts of a session.
type looking struct {
	commands []dbsqlc.SessionCommand
	first    []dbsqlc.PromptsFirstRow
}

func (l *looking) read(ctx context.Context, q *dbsqlc.Queries, in *lookups, sessionID string) error {
	var commandsErr, firstErr error
	l.commands, commandsErr = q.CommandsPending(ctx, in, sessionID)
	l.first, firstErr = q.PromptsFirst(ctx, in, &dbsqlc.PromptsFirstParams{SessionID: sessionID, MaxItems: session.MaxWaitingSeen})
	return cmp.Or(commandsErr, firstErr)
}

func (l *looking) found(s *sessionTx) session.Look {
	look := session.Look{Status: session.State(s.row.Status), Commands: commandsOf(l.commands), IdleTimeout: time.Duration(s.row.IdleTimeoutNs)}
	if s.held() {
		return look
	}
	for _, p := range l.first {
		look.Waiting, look.Queued = append(look.Waiting, session.QueuedPrompt{ID: p.ID, Ordinal: p.Ordinal, Rank: p.Rank}), p.Queued
	}
	return look
}

// recordRead records that a workflow run has read the pending work.
func (s *sessionTx) recordRead(ctx context.Context, workflowRunID string) error {
	return cmp.Or(
		s.q.SessionWorkRead(ctx, &s.later, s.row.ID),
		s.q.CommandsRead(ctx, &s.later, &dbsqlc.CommandsReadParams{SessionID: s.row.ID, HeardBy: workflowRunID}),
	)
}

// CommandsOverdue lists sessions with a command that has been pending for longer than age, those
// whose command no workflow has read first, and sessions that have not reacted to a signal for
// signalAgain.
func (db *DB) CommandsOverdue(ctx context.Context, age time.Duration, limit int) ([]backlog.Overdue, error) {
	rows, err := db.q.CommandsOverdue(ctx, db.pool, &dbsqlc.CommandsOverdueParams{
		AgeSeconds: age.Seconds(), SignalledSeconds: max(age, signalAgain).Seconds(), MaxItems: int32(limit),
	})
	if err != nil {
		return nil, fault("list pending commands", err)
	}
	overdue := make([]backlog.Overdue, len(rows))
	for i, row := range rows {
		overdue[i] = backlog.Overdue{SessionID: row.SessionID, Stop: row.Stop, HeardBy: row.HeardBy}
	}
	return overdue, nil
}

func commandsOf(rows []dbsqlc.SessionCommand) []session.Command {
	var commands []session.Command
	for _, row := range rows {
		commands = append(commands, commandOf(row))
	}
	return commands
}

func commandOf(row dbsqlc.SessionCommand) session.Command {
	return session.Command{
		ID: row.ID, SessionID: row.SessionID, Kind: session.CommandKind(row.Kind), Force: row.Force,
		PromptID: row.PromptID, BundleID: row.BundleID, RunID: row.RunID, Status: session.CommandStatus(row.Status), Reason: row.Reason,
		CreatedAt: row.CreatedAt.UTC(), EndedAt: orZero(row.EndedAt), RequestID: row.RequestID,
	}
}

// signalFor decides under the lock whether to signal new work that does not interrupt a running
// turn: not during a turn, after which the workflow reads the pending work anyway, and not while
// another signal is outstanding.
func (s *sessionTx) signalFor(ctx context.Context, work bool) (bool, error) {
	if !work || session.State(s.row.Status).Final() || !s.shouldSignal() {
		return false, nil
	}
	if _, err := s.q.RunGetOpen(ctx, s, s.row.ID); err == nil || !isNoRows(err) {
		return false, err
	}
	return true, s.signalled(ctx, true)
}
