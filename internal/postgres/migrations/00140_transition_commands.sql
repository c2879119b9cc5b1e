-- +goose Up

-- The command that a transition was made for; empty if there was none, or if it was recorded before this column.
ALTER TABLE session_transitions ADD COLUMN command_id text NOT NULL DEFAULT '';
