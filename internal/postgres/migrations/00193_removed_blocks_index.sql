-- +goose NO TRANSACTION
-- +goose Up

-- Building an index concurrently waits for older transactions, but no transaction waits for the
-- build, so it needs no lock timeout.
SET lock_timeout = 0;

-- Whether blocks of a bundle were removed later is asked whenever a session is read. Few sessions have
-- removed blocks.
DROP INDEX CONCURRENTLY IF EXISTS blocks_removed;
CREATE INDEX CONCURRENTLY blocks_removed ON blocks (session_id, removed_seq) WHERE removed_seq IS NOT NULL;

RESET lock_timeout;
