-- +goose Up

-- Where in its session's log a run began. Clocks of workers differ; positions do not. Runs of
-- before have none and keep the order of their times, before all others.
ALTER TABLE runs ADD COLUMN began_seq bigint NOT NULL DEFAULT 0;
