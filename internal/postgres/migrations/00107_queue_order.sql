-- +goose Up

-- Prompts that wait run in the order of rank and, within it, of ordinal. The digest is of the body that a prompt was submitted with, if it
-- was replaced since: a repeated request is compared with it.
ALTER TABLE prompts ADD COLUMN rank bigint NOT NULL DEFAULT 0, ADD COLUMN submitted_digest bytea;
