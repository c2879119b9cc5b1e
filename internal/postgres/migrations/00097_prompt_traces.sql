-- +goose Up

-- The trace of the request that submitted a prompt, as a W3C traceparent; empty if it is not
-- traced. It links the request to the turn, even if an attendant claims the prompt without a
-- workflow task.
ALTER TABLE prompts ADD COLUMN trace_parent text NOT NULL DEFAULT '';
