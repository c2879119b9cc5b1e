-- +goose Up

-- Session commands. A row is written before the response is sent, and its command ends in the same
-- transaction as the requested change.
CREATE TABLE session_commands (
    id         text        NOT NULL,
    session_id text        NOT NULL,
    kind       text        NOT NULL,
    force      boolean     NOT NULL,
    prompt_id  text        NOT NULL DEFAULT '',
    run_id     text        NOT NULL DEFAULT '',
    status     text        NOT NULL,
    reason     text        NOT NULL DEFAULT '',
    heard_by   text        NOT NULL DEFAULT '', -- the workflow run that has read it
    created_at timestamptz NOT NULL,
    ended_at   timestamptz,
    CONSTRAINT session_commands_pkey PRIMARY KEY (id),
    CONSTRAINT session_commands_session FOREIGN KEY (session_id) REFERENCES sessions (id) ON DELETE CASCADE,
    CONSTRAINT session_commands_kind CHECK (kind IN ('stop', 'wake', 'hibernate', 'sync', 'abort', 'revert', 'recover', 'environment/restart', 'environment/terminate')),
    CONSTRAINT session_commands_status CHECK (status IN ('pending', 'applied', 'superseded', 'refused')),
    CONSTRAINT session_commands_ended CHECK ((status = 'pending') = (ended_at IS NULL))
);

CREATE UNIQUE INDEX session_commands_pending ON session_commands (session_id, kind) WHERE status = 'pending';
-- For the relay, which reads the oldest commands, and for retention.
CREATE INDEX session_commands_waiting ON session_commands (created_at) WHERE status = 'pending';
CREATE INDEX session_commands_ended_order ON session_commands (session_id, ended_at, id) WHERE status <> 'pending';

-- When the workflow was signalled; null once it has read the pending work. Not indexed, so that
-- updates remain in place (HOT).
ALTER TABLE sessions ADD COLUMN signalled_at timestamptz;
