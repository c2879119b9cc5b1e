package api

import (
	"slices"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// revertCapability is the capability of an agent that supports revert.
const revertCapability = "revert"

// revert reverts the agent to before a prompt.
func (s *commands) revert(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	body, _, err := readBody(c, false)
	if err != nil {
		return err
	}
	body.required("promptId")
	promptID, given := body.text("promptId")
	if given && !session.ValidPromptID(promptID) {
		body.wrong("promptId", "must be 1 to 64 of A-Z a-z 0-9 _ -")
	}
	force := body.boolean("force")
	if err := body.done(); err != nil {
		return err
	}
	ctx := c.Request().Context()
	sess, err := s.store.SessionGet(ctx, id)
	if err != nil {
		return err
	}
	prompt, err := s.store.PromptGet(ctx, id, promptID)
	if err != nil {
		return err
	}
	if err := s.cannotRevert(sess, prompt); err != nil {
		return err
	}
	return s.submit(c, session.Command{SessionID: id, Kind: session.CommandRevert, PromptID: promptID, Force: force})
}

// cannotRevert returns why the agent of a session cannot be reverted to before a prompt; nil if it can.
func (s *commands) cannotRevert(sess session.Session, p session.Prompt) *failure.Error {
	can := slices.ContainsFunc(s.cfg.Agents.Describe(), func(d agent.Description) bool {
		return d.Name == sess.Agent && slices.Contains(d.Capabilities, revertCapability)
	})
	switch {
	case sess.Status.Final():
		return failure.Errorf(failure.Terminated, "the session is terminated; nothing can be done with it any more")
	case sess.Status == session.Error:
		return session.InError(sess.StatusReason)
	case !can:
		return failure.Errorf(failure.NotSupported, "the agent %s does not support revert", sess.Agent)
	}
	return session.JudgeRevert(p)
}
