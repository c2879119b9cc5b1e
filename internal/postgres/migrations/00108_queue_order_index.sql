-- +goose NO TRANSACTION
-- +goose Up

-- Building an index concurrently waits for older transactions, but no transaction waits for the
-- build, so it needs no lock timeout.
SET lock_timeout = 0;

DROP INDEX CONCURRENTLY IF EXISTS prompts_order;
CREATE INDEX CONCURRENTLY prompts_order ON prompts (session_id, rank, ordinal) INCLUDE (status) WHERE status IN ('queued', 'processing');
DROP INDEX CONCURRENTLY IF EXISTS prompts_unfinished;

RESET lock_timeout;
