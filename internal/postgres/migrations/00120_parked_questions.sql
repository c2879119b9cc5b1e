-- +goose Up

-- A run is parked while its session sleeps with an open question. It continues in another sandbox
-- as its next part, whose frames are numbered from frame_base on.
ALTER TABLE runs ADD COLUMN parked_at timestamptz;
ALTER TABLE runs ADD COLUMN part bigint NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN frame_base bigint NOT NULL DEFAULT 0;

-- The part of the run that starts after the parked question; 0: the agent itself waits for the
-- answer.
ALTER TABLE questions ADD COLUMN parked_part bigint NOT NULL DEFAULT 0;
