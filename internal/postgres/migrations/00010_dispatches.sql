-- +goose Up

-- Attempts at a run are ordered, so that one that was paused never takes the token of a newer one:
-- by the dispatch that a workflow was allotted, then by Temporal's attempt at it.
ALTER TABLE runs
    ADD COLUMN dispatch      bigint NOT NULL DEFAULT 0, -- allotted last
    ADD COLUMN held_dispatch bigint NOT NULL DEFAULT 0, -- of the attempt that attached last
    ADD COLUMN held_attempt  bigint NOT NULL DEFAULT 0;
