-- +goose Up

-- The X-Request-Id of the request that accepted a prompt or a command; empty for those of earlier releases and those that no client sent.
ALTER TABLE prompts ADD COLUMN request_id text NOT NULL DEFAULT '';
ALTER TABLE session_commands ADD COLUMN request_id text NOT NULL DEFAULT '';
