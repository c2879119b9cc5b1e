-- +goose Up

-- A run is parked while its session sleeps with a question open. It continues in another sandbox, as its next part: what the agent
-- prints there is numbered from frame_base on.
ALTER TABLE runs ADD COLUMN parked_at timestamptz;
ALTER TABLE runs ADD COLUMN part bigint NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN frame_base bigint NOT NULL DEFAULT 0;

-- The part of the run before which the question was put; 0: its agent waits for the answer.
ALTER TABLE questions ADD COLUMN parked_part bigint NOT NULL DEFAULT 0;
