package postgres

import (
	"context"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// PromptByAgent stores a prompt that an agent sends to a session. One with an id that is stored already changes nothing: it is sent
// again. limit_reached if agents have sent MaxAgentPrompts since the last prompt of a person, and else the errors of PromptSubmit.
func (db *DB) PromptByAgent(ctx context.Context, p session.Prompt) error {
	switch _, err := db.PromptGet(ctx, p.SessionID, p.ID); failure.CodeOf(err) {
	case "":
		return nil
	case failure.NoPrompt:
	default:
		return err
	}
	sent, err := db.q.PromptsOfAgents(ctx, db.pool, &dbsqlc.PromptsOfAgentsParams{SessionID: p.SessionID, Prefix: session.AgentAuthor})
	if err != nil {
		return fault("count the prompts of agents", err)
	}
	if sent >= session.MaxAgentPrompts {
		return failure.Errorf(failure.LimitReached, "agents have sent %d prompts since the last one of a person, which is the limit", session.MaxAgentPrompts)
	}
	_, _, _, err = db.PromptSubmit(ctx, p)
	return err
}
