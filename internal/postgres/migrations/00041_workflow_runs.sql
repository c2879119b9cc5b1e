-- +goose Up

-- The newest run of the session's workflow. Writes and requests of any other run are refused,
-- because a reset in Temporal creates a new run with an earlier state of the session. Empty until a
-- workflow of this version has opened the session.
ALTER TABLE sessions ADD COLUMN workflow_run text NOT NULL DEFAULT '';
