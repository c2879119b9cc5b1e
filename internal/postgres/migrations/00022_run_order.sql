-- +goose Up

-- The position in the session's log at which a run began. Clocks differ between workers; positions
-- do not. Earlier runs have no position and are sorted by time, before all others.
ALTER TABLE runs ADD COLUMN began_seq bigint NOT NULL DEFAULT 0;
