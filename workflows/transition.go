package workflows

import (
	"fmt"
	"strings"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/session"
)

var (
	statusAttribute     = temporal.NewSearchAttributeKeyKeyword(contract.AttributeStatus)
	agentAttribute      = temporal.NewSearchAttributeKeyKeyword(contract.AttributeAgent)
	ownerAttribute      = temporal.NewSearchAttributeKeyKeyword(contract.AttributeOwner)
	workspaceAttribute  = temporal.NewSearchAttributeKeyKeyword(contract.AttributeWorkspace)
	generationAttribute = temporal.NewSearchAttributeKeyInt64(contract.AttributeGeneration)
)

// transit takes one step of the table: it records the step in Postgres, then moves, then updates
// the search attributes and the current details. The error is Fenced if the session has another
// state because a step of an earlier run was committed after this run had read the row.
func (l *life) transit(ctx workflow.Context, event session.Event, reason string, receipt *receipt.Receipt) error {
	to, err := session.Next(l.state, event)
	if err != nil {
		return err // a programming error
	}
	t := l.transition(event, to, reason)
	t.Receipt, t.At = receipt, workflow.Now(ctx)
	if to == session.Error {
		t.Cause = session.CauseRefused
		if strings.HasPrefix(reason, unusableReason) {
			t.Cause = ""
		}
	}
	doing := fmt.Sprintf("record %s → %s", l.state, to)
	if err := l.record(ctx, doing, control.RecordTransition, t, nil); err != nil {
		return err
	}
	return l.enter(ctx, t)
}

// transition returns the next transition of the session, without its time.
func (l *life) transition(event session.Event, to session.State, reason string) session.Transition {
	return session.Transition{
		SessionID: l.id, No: l.transitionNo + 1, From: l.state, To: to, Event: event,
		Reason: reason, Generation: l.generation, Command: l.cause(event, reason), Since: l.since,
	}
}

// enter moves to the state of a recorded transition.
func (l *life) enter(ctx workflow.Context, t session.Transition) error {
	l.state, l.reason, l.errorCause, l.transitionNo, l.since = t.To, t.Reason, t.Cause, t.No, t.At
	l.endDelay()
	l.moved, l.hibernatedInRun = true, t.To == session.Hibernated
	switch t.To {
	case session.Error:
		l.trouble = trouble{tries: l.trouble.tries}
	case session.Running:
		l.trouble = trouble{}
	}
	if t.To == session.Running {
		l.lastActivity, l.losses.up = t.At, t.At
	}
	return l.project(ctx)
}

// project shows the session's state in Temporal.
func (l *life) project(ctx workflow.Context) error {
	attributes := []temporal.SearchAttributeUpdate{
		statusAttribute.ValueSet(string(l.state)),
		generationAttribute.ValueSet(l.generation),
	}
	if l.agent != "" {
		attributes = append(attributes, agentAttribute.ValueSet(l.agent))
	}
	if l.owner != "" {
		attributes = append(attributes, ownerAttribute.ValueSet(l.owner))
	}
	if l.workspace != "" {
		attributes = append(attributes, workspaceAttribute.ValueSet(l.workspace))
	}
	if err := workflow.UpsertTypedSearchAttributes(ctx, attributes...); err != nil {
		return fmt.Errorf("upsert search attributes: %w", err)
	}
	if err := l.note(ctx); err != nil {
		return err
	}
	l.showDoing(ctx, l.doing)
	return nil
}
