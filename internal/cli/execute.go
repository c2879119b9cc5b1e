package cli

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// Request is a command for a session, such as hibernate.
type Request struct {
	SessionID string
	Kind      client.CommandKind
	Force     bool // it interrupts the running turn
	// Send sends it. Accepted is false if there was nothing to do.
	Send func(context.Context) (s client.Session, accepted bool, err error)
}

// targets are the states in which the effect of a command is complete. Other commands are complete
// when they are applied.
var targets = map[client.CommandKind][]client.Status{
	client.Wake:                 {client.StatusRunning},
	client.Recover:              {client.StatusRunning},
	client.RestartEnvironment:   {client.StatusRunning},
	client.Hibernate:            {client.StatusHibernated},
	client.TerminateEnvironment: {client.StatusHibernated, client.StatusRunning}, // running: of a session that was in error
	client.Stop:                 {client.StatusTerminated},
}

// waitsForTurn lists the commands that are carried out after the running turn.
var waitsForTurn = []client.CommandKind{
	client.Hibernate, client.RestartEnvironment, client.TerminateEnvironment, client.Sync, client.RevertCommand,
}

// execution is a request that was sent and whose effect is not complete.
type execution struct {
	Request
	client    *client.Client
	notes     io.Writer
	commandID string // empty: it has ended, or there was nothing to do
	applied   bool
	state     client.Status // after it was applied
	reason    string
}

// Execute sends a request and returns the session when the effect is complete: for a hibernate when
// the session is hibernated, for a wake when it runs. An error reports that the command was not
// applied or that the session is in error. Messages for the user are written to notes.
func Execute(ctx context.Context, api *client.Client, r Request, notes io.Writer) (s client.Session, accepted bool, err error) {
	after, err := api.Position(ctx, r.SessionID)
	if err != nil {
		return s, false, err
	}
	if s, accepted, err = r.Send(ctx); err != nil {
		return s, false, err
	}
	c := execution{Request: r, client: api, notes: notes, state: s.Status, reason: s.StatusReason}
	for _, pending := range s.PendingCommands {
		if accepted && pending.Kind == r.Kind {
			c.commandID = pending.ID
		}
	}
	c.applied = c.commandID == ""
	if c.applied && (c.complete() || !accepted && !c.moving()) {
		return s, accepted, nil
	}
	if err := c.openQuestions(ctx); err != nil {
		return s, accepted, err
	}
	for e, err := range api.Follow(ctx, r.SessionID, after) {
		if err != nil {
			return s, accepted, fmt.Errorf("wait for %s of %s: %w", r.Kind, r.SessionID, err)
		}
		done, err := c.take(ctx, e)
		if err != nil {
			return s, accepted, err
		}
		if done {
			break
		}
	}
	s, err = api.SessionGet(ctx, r.SessionID)
	return s, accepted, err
}

// complete reports whether the session has reached a target state of the command.
func (c *execution) complete() bool {
	to, ok := targets[c.Kind]
	return !ok || slices.Contains(to, c.state)
}

// moving reports whether the session is about to change its state.
func (c *execution) moving() bool {
	return c.state == client.StatusInitializing || c.state == client.StatusHibernating || c.state == client.StatusRestoring
}

// take reads an event and reports whether the command's effect is complete.
func (c *execution) take(ctx context.Context, e client.Event) (bool, error) {
	switch e.Type {
	case client.MarkerEnd:
		if c.Kind == client.Stop {
			return true, nil
		}
		return false, fmt.Errorf("%s had no effect: session %s is terminated", c.Kind, c.SessionID)
	case client.EventCommand:
		if err := c.command(ctx, e); err != nil {
			return false, err
		}
	case client.EventStatus:
		data, err := decode[client.StatusData](e)
		if err != nil {
			return false, err
		}
		if c.applied { // an earlier state may be the one that the command leaves
			c.state, c.reason = data.Status, data.Reason
		}
	case client.EventQuestion:
		data, err := decode[client.QuestionData](e)
		if err != nil {
			return false, err
		}
		return false, c.delayed(data.Question)
	}
	switch {
	case !c.applied:
		return false, nil
	case c.complete():
		return true, nil
	case c.state == client.StatusError:
		return false, inError(c.SessionID, c.reason)
	}
	return false, nil
}

// command reads the outcome of the command, if the event has it.
func (c *execution) command(ctx context.Context, e client.Event) error {
	data, err := decode[client.CommandData](e)
	if err != nil {
		return err
	}
	ended := data.Command
	if ended.ID != c.commandID || ended.Status == client.CommandPending {
		return nil
	}
	if ended.Status != client.CommandApplied {
		why := ""
		if ended.Reason != "" {
			why = " (" + terminal.OneLine(ended.Reason, maxReason) + ")"
		}
		return fmt.Errorf("%s of session %s was %s%s", c.Kind, c.SessionID, ended.Status, why)
	}
	now, err := c.client.SessionGet(ctx, c.SessionID) // its state is that of the command's transition, or a later one
	if err != nil {
		return err
	}
	c.applied, c.state, c.reason = true, now.Status, now.StatusReason
	return nil
}

// openQuestions reports the questions that the command waits for.
func (c *execution) openQuestions(ctx context.Context) error {
	if c.applied || c.Force || !slices.Contains(waitsForTurn, c.Kind) {
		return nil
	}
	questions, err := c.client.QuestionList(ctx, c.SessionID, client.QuestionOpen)
	if err != nil {
		return err
	}
	for _, q := range questions.Items {
		if err := c.delayed(q); err != nil {
			return err
		}
	}
	return nil
}

// delayed reports that the command waits until a question is answered.
func (c *execution) delayed(q client.Question) error {
	if c.applied || c.Force || !slices.Contains(waitsForTurn, c.Kind) {
		return nil
	}
	force := ", or use --force"
	if c.Kind == client.Sync {
		force = "" // it interrupts nothing
	}
	_, err := fmt.Fprintf(c.notes, "%s waits for the turn, in which the agent asks: %s\nanswer with overwinter session answer %s %s%s; the question expires at %s\n",
		c.Kind, terminal.OneLine(q.Title, terminal.LineRunes), c.SessionID, q.ID, force, q.ExpiresAt)
	return err
}

// AwaitRunning returns a new session when it runs. An error reports that it is in error or
// terminated.
func AwaitRunning(ctx context.Context, api *client.Client, id string) (client.Session, error) {
	t := trouble{sessionID: id, final: true}
	for e, err := range api.Follow(ctx, id, 0) {
		if err == nil {
			err = t.take(e)
		}
		if err != nil {
			return client.Session{}, fmt.Errorf("wait for session %s: %w", id, err)
		}
		if t.status == client.StatusRunning || e.Type == client.MarkerEnd {
			break
		}
	}
	return api.SessionGet(ctx, id)
}
