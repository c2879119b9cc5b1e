package why

import (
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// question explains the status of a question.
func (c *chain) question() {
	if len(c.Questions) == 0 {
		c.row(NothingToExplain, time.Time{}, about("session", c.Session.ID), "no question was asked")
		c.created()
		return
	}
	q := c.Questions[0]
	c.out.ID = q.ID
	ref := about("question", q.ID)
	switch question.Status(q.Status) {
	case question.Open:
		c.row(QuestionOpen, q.CreatedAt, ref, "the question has been open since %s and expires at %s", clock(q.CreatedAt), clock(q.ExpiresAt))
	case question.Answered:
		c.row(QuestionAnswered, q.ResolvedAt, ref, "the question was answered at %s", clock(q.ResolvedAt))
	case question.Expired:
		c.row(QuestionExpired, q.ResolvedAt, ref, "no answer arrived before %s, so the agent got a rejection", clock(q.ExpiresAt))
	case question.Cancelled:
		c.row(QuestionCancelled, q.ResolvedAt, ref, "the question was cancelled at %s%s", clock(q.ResolvedAt), because(q.Reason))
	}
	switch q.Reason {
	case question.ReasonPolicy:
		c.row(PolicyDecided, q.ResolvedAt, ref, "the permissions of the session decided it, and no person was asked")
	case question.ReasonTurnEnded:
		c.row(TurnEnded, q.ResolvedAt, ref, "its turn ended, and the question with it")
	case session.ReasonWithdrawn:
		c.row(Withdrawn, q.ResolvedAt, ref, "the agent withdrew it in the middle of its turn")
	}
	for _, r := range c.Runs {
		if r.ID != q.RunID {
			continue
		}
		if !r.ParkedAt.IsZero() {
			c.row(TurnParked, r.ParkedAt, about("run", r.ID), "the turn is parked until the answer, and the session may sleep in the meantime")
		}
		if r.Outcome != "" && q.Reason == question.ReasonTurnEnded {
			c.because(r.Reason, r.EndedAt, about("run", r.ID))
		}
	}
	asker := "an agent"
	if strings.HasPrefix(q.RunID, session.RunPrefix) {
		asker = "the agent, in the run " + q.RunID + ","
	}
	c.row(PromptProcessing, q.CreatedAt, about("run", q.RunID), "%s asked at %s", asker, clock(q.CreatedAt))
}
