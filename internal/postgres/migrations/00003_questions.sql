-- +goose Up

-- Questions of agents. A question belongs to the turn in which it was asked and is closed when that
-- turn ends, at the latest. delivered_at is when the agent received the outcome of the question.
-- Until then a worker must still deliver it.
CREATE TABLE questions (
    id           text        NOT NULL,
    session_id   text        NOT NULL,
    run_id       text        NOT NULL,
    agent_id     text        NOT NULL, -- the agent's id of the question
    asked        json        NOT NULL,
    status       text        NOT NULL DEFAULT 'open',
    answer       json,
    reason       text        NOT NULL DEFAULT '',
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL,
    resolved_at  timestamptz,
    delivered_at timestamptz,
    CONSTRAINT questions_pkey PRIMARY KEY (id),
    CONSTRAINT questions_run FOREIGN KEY (run_id) REFERENCES runs (id) ON DELETE CASCADE,
    CONSTRAINT questions_session FOREIGN KEY (session_id) REFERENCES sessions (id) ON DELETE CASCADE,
    CONSTRAINT questions_agent_id UNIQUE (run_id, agent_id),
    CONSTRAINT questions_status CHECK (status IN ('open', 'answered', 'expired', 'cancelled')),
    CONSTRAINT questions_answered CHECK ((status = 'answered') = (answer IS NOT NULL)),
    CONSTRAINT questions_resolved CHECK ((status = 'open') = (resolved_at IS NULL))
);

CREATE INDEX questions_newest ON questions (session_id, id DESC);
CREATE INDEX questions_pending ON questions (run_id) WHERE delivered_at IS NULL;
