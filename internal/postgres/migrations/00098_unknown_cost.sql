-- +goose Up

-- NULL: unknown. For a session: turns have ended, but none reported a cost.
ALTER TABLE runs ALTER COLUMN cost_usd DROP NOT NULL;
ALTER TABLE sessions ALTER COLUMN cost_usd DROP NOT NULL;
