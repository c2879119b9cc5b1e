package api

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/wire"
)

// command is one of the things that a session can be told to do.
type command struct {
	name string
	// judge says what the command means for a session as its row shows it.
	judge func(session.Session) verdict
	// send tells the workflow.
	send func(o Orchestrator, ctx context.Context, sessionID string, force bool) error
	// forced: the body may say force.
	forced bool
}

// verdict is what a command means for a session: already there unless it is to be
// sent, or refused.
type verdict struct {
	send    bool
	refused *session.Fault
}

var (
	alreadyThere = verdict{}
	accepted     = verdict{send: true}
)

func refused(format string, args ...any) verdict {
	return verdict{refused: session.Faultf(session.CodeIllegalState, format, args...)}
}

const leaveError = "the session is in error; POST recover to try again, or stop to end it"

// stop ends a session; DELETE does the same.
var stop = command{
	name: "stop",
	judge: func(s session.Session) verdict {
		if s.Status == session.Terminated {
			return alreadyThere
		}
		return accepted
	},
	send: func(o Orchestrator, ctx context.Context, id string, _ bool) error { return o.Stop(ctx, id) },
}

// ofASandbox judges what is done with the sandbox of a session that is awake. What sleeps has none,
// and is saved.
func ofASandbox(s session.Session) verdict {
	switch s.Status {
	case session.Hibernating, session.Hibernated:
		return alreadyThere
	case session.Initializing:
		return refused("the session has no sandbox yet; wait until it is running")
	case session.Error:
		return refused(leaveError)
	}
	return accepted
}

// commands are all of them, each POST /api/sessions/:id/NAME.
var commands = []command{
	stop,
	{
		name: "wake",
		judge: func(s session.Session) verdict {
			switch s.Status {
			case session.Running, session.Restoring:
				return alreadyThere
			case session.Initializing:
				if !s.Lazy {
					return alreadyThere // its sandbox is on its way
				}
			case session.Error:
				return refused(leaveError)
			}
			return accepted
		},
		send: func(o Orchestrator, ctx context.Context, id string, _ bool) error { return o.Wake(ctx, id) },
	},
	{
		name: "hibernate",
		judge: func(s session.Session) verdict {
			switch s.Status {
			case session.Hibernating, session.Hibernated:
				return alreadyThere
			case session.Initializing:
				return refused("the session has no sandbox yet that could hibernate; wait until it is running, or stop it")
			case session.Error:
				return refused(leaveError)
			}
			return accepted
		},
		send: func(o Orchestrator, ctx context.Context, id string, force bool) error {
			return o.Hibernate(ctx, id, force)
		},
		forced: true,
	},
	{
		name:  "sync",
		judge: ofASandbox,
		send:  func(o Orchestrator, ctx context.Context, id string, _ bool) error { return o.Sync(ctx, id) },
	},
	{
		name:  "environment/terminate",
		judge: ofASandbox,
		send: func(o Orchestrator, ctx context.Context, id string, force bool) error {
			return o.DropSandbox(ctx, id, force)
		},
		forced: true,
	},
	{
		name: "environment/restart",
		judge: func(s session.Session) verdict {
			if s.Status == session.Hibernating || s.Status == session.Hibernated {
				return refused("the session is %s and has no sandbox to restart; POST wake or a prompt to wake it", s.Status)
			}
			return ofASandbox(s)
		},
		send: func(o Orchestrator, ctx context.Context, id string, force bool) error {
			return o.Restart(ctx, id, force)
		},
		forced: true,
	},
	{
		name: "abort",
		judge: func(s session.Session) verdict {
			if s.Queue.Processing == 0 {
				return alreadyThere
			}
			return accepted
		},
		send: func(o Orchestrator, ctx context.Context, id string, _ bool) error { return o.Abort(ctx, id) },
	},
	{
		name: "recover",
		judge: func(s session.Session) verdict {
			switch s.Status {
			case session.Error:
				return accepted
			case session.Running, session.Restoring:
				return alreadyThere
			case session.Hibernated, session.Hibernating:
				return refused("the session is not in error but %s; POST wake or a prompt to wake it", s.Status)
			}
			return refused("the session is not in error but %s", s.Status)
		},
		send: func(o Orchestrator, ctx context.Context, id string, _ bool) error { return o.Recover(ctx, id) },
	},
}

// command handles one command: 202 where the workflow has been told, 200 where
// there is nothing to do.
func (s *Server) command(cmd command) echo.HandlerFunc {
	return func(c echo.Context) error {
		id, err := sessionID(c)
		if err != nil {
			return err
		}
		body, _, err := readBody(c, true)
		if err != nil {
			return err
		}
		force := cmd.forced && body.boolean("force")
		if err := body.done(); err != nil {
			return err
		}
		ctx := c.Request().Context()
		sess, err := s.cfg.Store.SessionGet(ctx, id)
		if err != nil {
			return err
		}
		v := cmd.judge(sess)
		if sess.Status.Final() && cmd.name != stop.name {
			return session.Faultf(session.CodeTerminated, "the session is terminated; nothing can be done with it any more")
		}
		if v.refused != nil {
			return v.refused
		}
		status := http.StatusOK
		if v.send {
			status = http.StatusAccepted
			if err := s.send(ctx, cmd, id, force); err != nil {
				return err
			}
		}
		return c.JSON(status, wire.Session(sess))
	}
}

// send tells the workflow. One that is not open although its session is not final
// was lost; it is opened again from its row, and the caller is asked to repeat.
func (s *Server) send(ctx context.Context, cmd command, id string, force bool) error {
	err := cmd.send(s.cfg.Orchestrator, ctx, id, force)
	if session.CodeOf(err) != session.CodeNoSession {
		return err
	}
	s.ring(ctx, id, "", 0)
	return &session.Fault{Code: session.CodeUnavailable, Message: "the session is being taken up again; try again", Err: err}
}
