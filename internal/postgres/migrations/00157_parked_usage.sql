-- +goose Up

-- The usage of the run's parts that ended when it was parked; the end of the run reports the usage
-- of its last part. The cost is null if the cost of one of them is unknown. part_seq is the
-- session's newest event when the current part began; 0: the first part.
ALTER TABLE runs ADD COLUMN part_seq bigint NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN parked_input_tokens bigint NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN parked_output_tokens bigint NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN parked_tool_calls bigint NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN parked_cost_usd double precision;
