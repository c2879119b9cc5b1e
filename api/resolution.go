package api

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// resolve handles one kind of resolution of a prompt whose outcome is unknown. The response is 202
// for a newly queued retry, otherwise 200.
func (s *prompts) resolve(action session.Resolution) echo.HandlerFunc {
	return func(c echo.Context) error {
		id, promptID, err := promptIDs(c)
		if err != nil {
			return err
		}
		body, _, err := readBody(c, action != session.ResolutionResolve)
		if err != nil {
			return err
		}
		r := session.Resolve{SessionID: id, PromptID: promptID, Action: action}
		switch action {
		case session.ResolutionRetry:
			r.RunID = body.runID("runId")
			if n, given := body.number("attempt"); given {
				if r.Attempt = int(n); n < 1 || n > session.MaxAttempt {
					body.wrong("attempt", "must be a number from 1 to %d", session.MaxAttempt)
				}
			}
		case session.ResolutionResolve:
			body.required("outcome")
			r.Outcome = session.PromptStatus(body.oneOf("outcome", "", string(session.PromptCompleted), string(session.PromptFailed)))
			r.Note = body.note("note")
		case session.ResolutionDismiss:
			r.Note = body.note("note")
		}
		if err := body.done(); err != nil {
			return err
		}
		ctx := c.Request().Context()
		prompt, changed, err := s.store.PromptResolve(ctx, r)
		if err != nil {
			return err
		}
		if prompt.Notify {
			s.signalPrompt(ctx, id, prompt.ID, prompt.Ordinal)
		}
		status := http.StatusOK
		if changed && action == session.ResolutionRetry {
			status = http.StatusAccepted
		}
		return c.JSON(status, resource.Prompt(prompt))
	}
}

// note reads a person's note about a resolution.
func (o *object) note(name string) string {
	text, ok := o.text(name)
	if ok && len(text) > session.MaxNoteBytes {
		o.wrong(name, "is %d bytes long; at most %d are allowed", len(text), session.MaxNoteBytes)
	}
	return text
}
