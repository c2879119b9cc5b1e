-- +goose Up

-- The token of the session's attendant: the attempt that may claim the next prompt itself. Empty if
-- only the session's workflow claims prompts.
ALTER TABLE sessions ADD COLUMN attendant text NOT NULL DEFAULT '';
