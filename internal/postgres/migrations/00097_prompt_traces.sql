-- +goose Up

-- The trace that the request which accepted a prompt belongs to, as a W3C traceparent; empty if it is not traced. It leads from the
-- request to the turn, also to one that an attendant claims, which no workflow task starts.
ALTER TABLE prompts ADD COLUMN trace_parent text NOT NULL DEFAULT '';
