-- +goose NO TRANSACTION
-- +goose Up

-- Resumes where it was interrupted; see 00082. Readers do not wait, writers wait for the piece that holds their session.
CALL event_log_number();

-- Building an index concurrently waits for older transactions, but nothing waits for it.
SET lock_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS sessions_no;
CREATE UNIQUE INDEX CONCURRENTLY sessions_no ON sessions (no);
-- Without statistics of the new column each piece of the copy would read the whole table.
ANALYZE sessions (no);
RESET lock_timeout;

CALL event_log_copy();

SET lock_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS runs_number;
CREATE UNIQUE INDEX CONCURRENTLY runs_number ON runs (session_id, no);
RESET lock_timeout;
