-- +goose Up

-- The run of the session's workflow that opened it last. Records and requests of any other run are refused: a reset in
-- Temporal makes a new run that knows the session as it was at some earlier time. Empty until a workflow of this version
-- has opened the session.
ALTER TABLE sessions ADD COLUMN workflow_run text NOT NULL DEFAULT '';
