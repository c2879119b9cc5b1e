-- +goose Up

-- Why a session is in error: 'refused' for what would fail again. Errors that earlier versions recorded have no cause;
-- whether those may pass is read from their reason.
ALTER TABLE sessions ADD COLUMN error_cause text NOT NULL DEFAULT '';

-- The relay looks for signals that no workflow has answered.
CREATE INDEX sessions_signalled ON sessions (signalled_at) WHERE signalled_at IS NOT NULL;
