package api

import (
	"context"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/why"
)

// whyStore reads the facts that explain a session.
type whyStore interface {
	// WhyFacts reads the facts that explain a subject. The id is that of a prompt or a question, or
	// the number of a transition; an empty id selects the newest or current one. Errors:
	// session_not_found, prompt_not_found, question_not_found, and invalid_request for a transition
	// that does not exist.
	WhyFacts(ctx context.Context, sessionID string, of why.Subject, id string) (why.Facts, error)
	SessionGet(ctx context.Context, sessionID string) (session.Session, error)
}

// explanations are the routes of explanations.
type explanations struct {
	*Server
	store whyStore
}

// why explains a session, or a subject within it, from rows and from Temporal. If Temporal is
// unavailable, it only uses rows.
func (s *explanations) why(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	of, subjectID, err := whyQuery(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	facts, err := s.store.WhyFacts(ctx, id, of, subjectID)
	if err != nil {
		return err
	}
	masker, err := s.cfg.Masks.Masker(ctx)
	if err != nil {
		return err
	}
	read, cancel := context.WithTimeout(ctx, s.cfg.HistoryTimeout)
	defer cancel()
	return c.JSON(http.StatusOK, why.Explain(of, subjectID, facts, s.cfg.Signaler.History(read, id)).Map(masker.Text))
}

// whyQuery reads the subject.
func whyQuery(c echo.Context) (of why.Subject, id string, err error) {
	given, id := c.QueryParam("of"), c.QueryParam("id")
	of = why.Subject(given)
	switch {
	case given == "" && id != "":
		return "", "", invalid("id", "requires of, which names the kind of the id")
	case given == "":
		return why.Session, "", nil
	case !slices.Contains(why.Subjects, of):
		return "", "", invalid("of", "must be one of: transition, prompt, receipt, question")
	case id == "":
		return of, "", nil
	case of == why.Prompt && !session.ValidPromptID(id):
		return "", "", invalid("id", "must be 1 to 64 of the characters A-Z a-z 0-9 _ -")
	case of == why.Question && !session.ValidID(session.QuestionPrefix, id):
		return "", "", invalid("id", "must be %s and 32 lower-case hexadecimal digits", session.QuestionPrefix)
	}
	return of, id, nil
}
