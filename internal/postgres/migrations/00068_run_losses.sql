-- +goose Up

-- The phase of the attempt that owns the run, and the attempts lost at one frame position; see
-- session.Losses.
ALTER TABLE runs
    ADD COLUMN doing        text   NOT NULL DEFAULT '',
    ADD COLUMN losses       int    NOT NULL DEFAULT 0,
    ADD COLUMN losses_frame bigint NOT NULL DEFAULT -1;
