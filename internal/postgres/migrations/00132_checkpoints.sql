-- +goose Up

-- When a session without its own policy saves a bundle while it is awake: hibernate (never), turn,
-- or a duration. Set by the worker that started last.
ALTER TABLE installation ADD COLUMN checkpoint text NOT NULL DEFAULT 'hibernate';
