package api

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// commandStore stores commands.
type commandStore interface {
	// CommandSubmit checks a command against the session's row and stores it as pending. The
	// result's command is nil if the command has no effect. Errors: session_not_found,
	// session_terminated, illegal_state, prompt_not_found for a revert, run_not_found for an abort.
	CommandSubmit(ctx context.Context, c session.Command) (session.Commanded, error)
	SessionGet(ctx context.Context, sessionID string) (session.Session, error)
	PromptGet(ctx context.Context, sessionID, promptID string) (session.Prompt, error)
}

// commands are the routes of commands.
type commands struct {
	*Server
	store commandStore
}

// forced are the commands whose body may have the field force.
var forced = map[session.CommandKind]bool{
	session.CommandHibernate: true, session.CommandRestart: true, session.CommandDrop: true,
}

// command handles the requests POST /api/sessions/:id/KIND of one kind. The response is 202 if the
// command is stored as pending or was applied at once, and 200 if it has no effect. The session's
// row decides.
func (s *commands) command(kind session.CommandKind) echo.HandlerFunc {
	return func(c echo.Context) error {
		id, err := sessionID(c)
		if err != nil {
			return err
		}
		body, _, err := readBody(c, true)
		if err != nil {
			return err
		}
		cmd := session.Command{SessionID: id, Kind: kind, Force: forced[kind] && body.boolean("force")}
		if kind == session.CommandAbort {
			cmd.RunID = body.runID("runId")
		}
		if err := body.done(); err != nil {
			return err
		}
		return s.submit(c, cmd)
	}
}

// submit stores a command and signals the session's workflow.
func (s *commands) submit(c echo.Context, cmd session.Command) error {
	ctx := c.Request().Context()
	cmd.RequestID = idOfRequest(c)
	done, err := s.store.CommandSubmit(ctx, cmd)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if done.Command != nil {
		status = http.StatusAccepted
	}
	if done.Notify {
		send := s.cfg.Signaler.SignalCommands
		if cmd.Kind == session.CommandStop {
			send = s.cfg.Signaler.SignalStop
		}
		s.signal(ctx, cmd.SessionID, func(ctx context.Context) error { return send(ctx, cmd.SessionID) })
	}
	return c.JSON(status, resource.Session(done.Session))
}

// runID reads the optional id of a run.
func (o *object) runID(name string) string {
	id, given := o.text(name)
	if given && !session.ValidID(session.RunPrefix, id) {
		o.wrong(name, "must be %s and 32 lower-case hexadecimal digits", session.RunPrefix)
	}
	return id
}
