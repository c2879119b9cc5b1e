package postgres

import (
	"context"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agentmessage"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres/dbsqlc"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// maxReachable bounds the sessions that an error message lists.
const maxReachable = 20

// PromptByAgent stores a prompt that an agent sends to its session, its parent or one of its forks,
// and returns it. Submitting a stored id again changes nothing. Errors: forbidden if the agent may
// not reach the session, limit_reached if it has sent MaxAgentPrompts since the last prompt of a
// person to that session or if the chain of messages is MaxAgentDepth long, and those of
// PromptSubmit.
func (db *DB) PromptByAgent(ctx context.Context, m agentmessage.Message) (session.Prompt, error) {
	to, sender, err := db.reach(ctx, m.From, m.To)
	if err != nil {
		return session.Prompt{}, err
	}
	switch p, err := db.PromptGet(ctx, to, m.ID); failure.CodeOf(err) {
	case "":
		return p, nil
	case failure.NoPrompt:
	default:
		return session.Prompt{}, err
	}
	p := m.Prompt(to, sender)
	if p.Depth > session.MaxAgentDepth {
		return session.Prompt{}, failure.Errorf(failure.LimitReached,
			"this turn ends a chain of %d messages between agents, which is the limit; a person must send the next prompt", m.Depth)
	}
	sent, err := db.q.PromptsOfAgent(ctx, db.pool, &dbsqlc.PromptsOfAgentParams{SessionID: to, Author: p.Author, Prefix: agentmessage.AuthorPrefix})
	if err != nil {
		return session.Prompt{}, fault("count the prompts of an agent", err)
	}
	if sent >= session.MaxAgentPrompts {
		return session.Prompt{}, failure.Errorf(failure.LimitReached,
			"this agent has sent session %s %d messages since the last prompt of a person there, which is the limit", to, session.MaxAgentPrompts)
	}
	stored, _, _, err := db.PromptSubmit(ctx, p)
	return stored, err
}

// reach finds the session that an agent names, and its relation to the session of the agent.
func (db *DB) reach(ctx context.Context, from, to string) (string, agentmessage.Relation, error) {
	if to == "" || to == agentmessage.Self || to == from {
		return from, agentmessage.RelationSelf, nil
	}
	related, err := db.q.ForkRelation(ctx, db.pool, &dbsqlc.ForkRelationParams{SessionID: from, OtherID: to})
	switch {
	case err != nil:
		return "", "", fault("find the sessions that an agent reaches", err)
	case related.Forked:
		return to, agentmessage.RelationParent, nil
	case to == related.ParentID, to == agentmessage.Parent && related.ParentID != "":
		return related.ParentID, agentmessage.RelationFork, nil
	}
	forks, err := db.q.ForksOf(ctx, db.pool, &dbsqlc.ForksOfParams{ParentID: from, Before: "t", MaxItems: maxReachable + 1})
	if err != nil {
		return "", "", fault("find the sessions that an agent reaches", err)
	}
	parent, own := "it has no parent", "it has no forks"
	if related.ParentID != "" {
		parent = "its parent is " + related.ParentID
	}
	switch {
	case len(forks) > maxReachable:
		own = "its newest forks are " + strings.Join(forks[:maxReachable], ", ")
	case len(forks) > 0:
		own = "its forks are " + strings.Join(forks, ", ")
	}
	return "", "", failure.Errorf(failure.Forbidden, "this session reaches itself, its parent and its own forks, not %s: %s, and %s", to, parent, own)
}
