-- +goose Up

-- Queued prompts run in the order of rank, then ordinal. submitted_digest is the digest of the
-- original body of a prompt that was replaced since; a repeated request is compared with it.
ALTER TABLE prompts ADD COLUMN rank bigint NOT NULL DEFAULT 0, ADD COLUMN submitted_digest bytea;
