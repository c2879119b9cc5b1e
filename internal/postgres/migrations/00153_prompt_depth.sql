-- +goose Up

-- How many messages of agents led to a prompt, one by the other; 0 for a prompt of a person or a program.
ALTER TABLE prompts ADD COLUMN depth integer NOT NULL DEFAULT 0;
