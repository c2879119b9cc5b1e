-- +goose Up

-- The command that caused a transition; empty if none did, or if the transition was recorded before
-- this column existed.
ALTER TABLE session_transitions ADD COLUMN command_id text NOT NULL DEFAULT '';
