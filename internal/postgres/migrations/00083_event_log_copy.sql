-- +goose NO TRANSACTION
-- +goose Up

-- Resumes where it was interrupted; see 00082. Readers do not wait, writers wait for the piece that holds their session.
CALL event_log_copy();

DROP INDEX IF EXISTS runs_number;
CREATE UNIQUE INDEX CONCURRENTLY runs_number ON runs (session_id, no);
