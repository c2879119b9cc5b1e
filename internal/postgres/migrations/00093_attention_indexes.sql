-- +goose NO TRANSACTION
-- +goose Up

-- Building an index concurrently waits for older transactions, but no transaction waits for the
-- build, so it needs no lock timeout.
SET lock_timeout = 0;

DROP INDEX CONCURRENTLY IF EXISTS prompts_unknown;
CREATE INDEX CONCURRENTLY prompts_unknown ON prompts (session_id) WHERE status = 'unknown';
DROP INDEX CONCURRENTLY IF EXISTS questions_open;
CREATE INDEX CONCURRENTLY questions_open ON questions (session_id) WHERE status = 'open';
-- The inbox of all sessions. It excludes questions that a policy answered without asking a person.
DROP INDEX CONCURRENTLY IF EXISTS questions_inbox;
CREATE INDEX CONCURRENTLY questions_inbox ON questions (status, id DESC) WHERE reason <> 'policy';

RESET lock_timeout;
