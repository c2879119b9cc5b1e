-- +goose Up

-- What the parts of a run have used that ended when it was parked: the end of a run reports its last part. The cost is null if that
-- of one of them is not known. part_seq is the session's newest event when the present part began; 0: the run's first.
ALTER TABLE runs ADD COLUMN part_seq bigint NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN parked_input_tokens bigint NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN parked_output_tokens bigint NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN parked_tool_calls bigint NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN parked_cost_usd double precision;
