-- +goose Up

-- Attempts of a run are ordered by the dispatch number assigned to the workflow, then by Temporal's
-- attempt number, so that a paused attempt never takes the token from a newer one.
ALTER TABLE runs
    ADD COLUMN dispatch      bigint NOT NULL DEFAULT 0, -- allotted last
    ADD COLUMN held_dispatch bigint NOT NULL DEFAULT 0, -- of the attempt that attached last
    ADD COLUMN held_attempt  bigint NOT NULL DEFAULT 0;
