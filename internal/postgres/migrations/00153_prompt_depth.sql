-- +goose Up

-- The length of the chain of agent messages that led to a prompt; 0 for a prompt of a person or a
-- program.
ALTER TABLE prompts ADD COLUMN depth integer NOT NULL DEFAULT 0;
