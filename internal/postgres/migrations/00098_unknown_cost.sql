-- +goose Up

-- NULL: it is not known. Of a session: turns have ended, and none has reported a cost.
ALTER TABLE runs ALTER COLUMN cost_usd DROP NOT NULL;
ALTER TABLE sessions ALTER COLUMN cost_usd DROP NOT NULL;
