-- +goose NO TRANSACTION
-- +goose Up

-- After an interruption, the copy resumes where it stopped; see 00082. Readers are not blocked; a
-- writer waits for the batch that contains its session.
CALL event_log_number();

-- Building an index concurrently waits for older transactions, but no transaction waits for the
-- build, so it needs no lock timeout.
SET lock_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS sessions_no;
CREATE UNIQUE INDEX CONCURRENTLY sessions_no ON sessions (no);
-- Without statistics of the new column, each batch of the copy would read the whole table.
ANALYZE sessions (no);
RESET lock_timeout;

CALL event_log_copy();

SET lock_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS runs_number;
CREATE UNIQUE INDEX CONCURRENTLY runs_number ON runs (session_id, no);
RESET lock_timeout;
