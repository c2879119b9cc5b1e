-- +goose Up

-- Why a session is in error: 'refused' if a retry would fail again. Errors of earlier versions have no cause; their
-- reason shows whether they are transient.
ALTER TABLE sessions ADD COLUMN error_cause text NOT NULL DEFAULT '';

-- For the relay, which looks for signals that no workflow has answered.
CREATE INDEX sessions_signalled ON sessions (signalled_at) WHERE signalled_at IS NOT NULL;
