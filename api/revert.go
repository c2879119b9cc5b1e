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

// revert reverts a session to a bundle, or to its state before a prompt.
func (s *commands) revert(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	body, _, err := readBody(c, false)
	if err != nil {
		return err
	}
	cmd := revertRequest(body)
	if err := body.done(); err != nil {
		return err
	}
	cmd.SessionID = id
	ctx := c.Request().Context()
	sess, err := s.store.SessionGet(ctx, id)
	if err != nil {
		return err
	}
	var prompt *session.Prompt
	if cmd.PromptID != "" {
		p, err := s.store.PromptGet(ctx, id, cmd.PromptID)
		if err != nil {
			return err
		}
		prompt = &p
	}
	if err := s.cannotRevert(sess, cmd.Kind, prompt); err != nil {
		return err
	}
	return s.submit(c, cmd)
}

// revertRequest reads the target of a revert. A revert to a bundle also reverts files, unless the
// request disables that.
func revertRequest(body *object) session.Command {
	bundle, prompt := body.point()
	cmd := session.Command{Kind: session.CommandRevert, BundleID: bundle, PromptID: prompt, Force: body.boolean("force")}
	if files := body.optionalBoolean("files"); files == nil && bundle != "" || files != nil && *files {
		cmd.Kind = session.CommandRevertFiles
	}
	return cmd
}

// cannotRevert returns the reason why a session cannot be reverted, or nil. p is the first prompt
// to undo, if the request names it. A snapshot also has the agent's memory, so every agent can be
// reverted together with files.
func (s *commands) cannotRevert(sess session.Session, kind session.CommandKind, p *session.Prompt) *failure.Error {
	can := kind == session.CommandRevertFiles || slices.ContainsFunc(s.cfg.Agents.Describe(), func(d agent.Description) bool {
		return d.Name == sess.Agent && slices.Contains(d.Capabilities, revertCapability)
	})
	switch {
	case sess.Status.Final():
		return failure.Errorf(failure.Terminated, "the session is terminated and accepts no commands")
	case sess.Status == session.Error:
		return session.InError(sess.StatusReason)
	case !can:
		return failure.Errorf(failure.NotSupported, "the agent %s does not support revert", sess.Agent)
	}
	if p == nil {
		return nil
	}
	return session.JudgeRevert(*p)
}
