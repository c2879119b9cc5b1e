-- +goose Up

-- The X-Request-Id of the request that submitted a prompt or a command; empty for rows of earlier
-- releases and for prompts and commands that no client sent.
ALTER TABLE prompts ADD COLUMN request_id text NOT NULL DEFAULT '';
ALTER TABLE session_commands ADD COLUMN request_id text NOT NULL DEFAULT '';
