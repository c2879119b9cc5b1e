-- +goose Up

-- The token of the attempt that may claim the session's next prompt by itself: its attendant. Empty if only the session's
-- workflow claims.
ALTER TABLE sessions ADD COLUMN attendant text NOT NULL DEFAULT '';
