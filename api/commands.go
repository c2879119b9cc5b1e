package api

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const leaveError = "the session is in error; POST recover to try again, or stop to end it"

// forced are the commands whose body may say force.
var forced = map[session.CommandKind]bool{
	session.CommandHibernate: true, session.CommandRestart: true, session.CommandDrop: true,
}

// command handles one command, each POST /api/sessions/:id/KIND: 202 where it is stored as pending or was
// applied at once, 200 where there is nothing to do. What it means is decided by the session's row.
func (s *Server) command(kind session.CommandKind) echo.HandlerFunc {
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
func (s *Server) submit(c echo.Context, cmd session.Command) error {
	ctx := c.Request().Context()
	done, err := s.cfg.Store.CommandSubmit(ctx, cmd)
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

// runID takes the id of a run, which may be left out.
func (o *object) runID(name string) string {
	id, given := o.text(name)
	if given && !session.ValidID(session.RunPrefix, id) {
		o.wrong(name, "must be %s and 32 lower-case hexadecimal digits", session.RunPrefix)
	}
	return id
}
