-- +goose NO TRANSACTION
-- +goose Up

-- Sessions stay in use while this migration runs: rows are copied a thousand at a time, and indexes
-- are built concurrently. After an interruption, the migration is repeated from its first
-- statement: copied rows stay, and an invalid index is dropped and built again.

-- Building an index concurrently waits for older transactions, but no transaction waits for the
-- build, so it needs no lock timeout.
SET lock_timeout = 0;

-- +goose StatementBegin
DO $$
DECLARE
    after text := '';
    page text[];
BEGIN
    LOOP
        -- The locks keep the copies as they are until they are committed: a trigger sees what comes later.
        SELECT array_agg(s.id) INTO page
        FROM (SELECT id FROM sessions WHERE id > after ORDER BY id LIMIT 1000 FOR SHARE) s;
        EXIT WHEN page IS NULL;
        INSERT INTO session_labels (label, created_at, session_id)
        SELECT DISTINCT f.label, s.created_at, s.id
        FROM sessions s, unnest(session_facets(NULL, NULL, s.metadata)) AS f (label)
        WHERE s.id = ANY (page)
        ON CONFLICT DO NOTHING;
        INSERT INTO session_activity (session_id, at)
        SELECT s.id, s.last_activity_at FROM sessions s WHERE s.id = ANY (page)
        ON CONFLICT (session_id) DO UPDATE SET at = excluded.at WHERE session_activity.at <> excluded.at;
        SELECT max(id) INTO after FROM unnest(page) AS p (id);
        COMMIT;
    END LOOP;
END $$;
-- +goose StatementEnd

DROP INDEX CONCURRENTLY IF EXISTS sessions_status_newest;
CREATE INDEX CONCURRENTLY sessions_status_newest ON sessions (status, created_at DESC, id DESC);
DROP INDEX CONCURRENTLY IF EXISTS sessions_agent_newest;
CREATE INDEX CONCURRENTLY sessions_agent_newest ON sessions (agent, created_at DESC, id DESC);
DROP INDEX CONCURRENTLY IF EXISTS sessions_status_agent_newest;
CREATE INDEX CONCURRENTLY sessions_status_agent_newest ON sessions (status, agent, created_at DESC, id DESC);

-- For lists with several filters. Every search reads the whole list of pending index entries, so
-- the list is kept short (the limit is in KiB).
DROP INDEX CONCURRENTLY IF EXISTS sessions_facets;
CREATE INDEX CONCURRENTLY sessions_facets ON sessions USING gin (session_facets(status, agent, metadata)) WITH (gin_pending_list_limit = 256);

RESET lock_timeout;
