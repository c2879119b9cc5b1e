-- +goose NO TRANSACTION
-- +goose Up

-- Building an index concurrently waits for older transactions, but no transaction waits for the
-- build, so it needs no lock timeout.
SET lock_timeout = 0;

DROP INDEX CONCURRENTLY IF EXISTS prompts_run;
CREATE UNIQUE INDEX CONCURRENTLY prompts_run ON prompts (allotted_run_id) WHERE allotted_run_id <> '';

RESET lock_timeout;
