-- +goose Up

-- Sessions whose data is to be erased, and tombstones of erased sessions. A tombstone prevents
-- reuse of the id and contains no other data of the session.
CREATE TABLE purges (
    session_id   text        NOT NULL,
    state        text        NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT now(),
    erased_at    timestamptz,
    next_at      timestamptz NOT NULL DEFAULT now(), -- when a worker next processes it
    attempts     integer     NOT NULL DEFAULT 0,
    CONSTRAINT purges_pkey PRIMARY KEY (session_id),
    CONSTRAINT purges_state CHECK (state IN ('stopping', 'erasing', 'checking', 'erased')),
    CONSTRAINT purges_erased CHECK ((state = 'erased') = (erased_at IS NOT NULL))
);
CREATE INDEX purges_due ON purges (next_at) WHERE state <> 'erased';

-- Indexes to find the rows of one session, also for foreign keys that reference its row.
CREATE INDEX idempotency_keys_session ON idempotency_keys (session_id);
CREATE INDEX session_commands_session ON session_commands (session_id);
CREATE INDEX exit_images_session ON exit_images (session_id);
CREATE INDEX snapshots_of_session ON snapshots (session_id);
CREATE INDEX sessions_head_bundle ON sessions (head_bundle_id) WHERE head_bundle_id IS NOT NULL;

-- For retention, which reads the sessions that were terminated first.
CREATE INDEX session_transitions_terminated ON session_transitions (at, session_id) WHERE to_status = 'terminated';
