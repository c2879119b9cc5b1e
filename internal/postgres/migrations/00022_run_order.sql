-- +goose Up

-- Where in its session's log a run began. Clocks of workers differ; positions do not. Earlier
-- runs have none and are sorted by time, before all others.
ALTER TABLE runs ADD COLUMN began_seq bigint NOT NULL DEFAULT 0;
