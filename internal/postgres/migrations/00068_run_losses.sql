-- +goose Up

-- What the attempt that holds a run does, and the losses of attempts at one position of its frames: see
-- session.Losses.
ALTER TABLE runs
    ADD COLUMN doing        text   NOT NULL DEFAULT '',
    ADD COLUMN losses       int    NOT NULL DEFAULT 0,
    ADD COLUMN losses_frame bigint NOT NULL DEFAULT -1;
