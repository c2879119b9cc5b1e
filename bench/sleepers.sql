SET synchronous_commit = off;

SET maintenance_work_mem = '256MB';

-- A row that is inserted with its indexes and triggers takes four times as long: they are made at the end, in bulk.
CREATE TEMP TABLE indexes_to_build AS
SELECT i.indexrelid::regclass::text AS name, pg_get_indexdef(i.indexrelid) AS definition
FROM pg_index i
WHERE i.indrelid IN ('sessions'::regclass, 'session_activity'::regclass)
    AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conindid = i.indexrelid);

DO $$
DECLARE
    i record;
BEGIN
    FOR i IN SELECT name FROM indexes_to_build LOOP
        EXECUTE 'DROP INDEX ' || i.name;
    END LOOP;
    ALTER TABLE session_labels DROP CONSTRAINT session_labels_pkey;
    ALTER TABLE sessions DISABLE TRIGGER USER;
END $$;

INSERT INTO sessions (id, status, agent, title, lazy, created_at, last_activity_at, idle_timeout_ns, metadata, options)
SELECT 'ses_' || left(md5(i::text) || md5((i * 7)::text), 32),
    CASE WHEN i % 10 < 3 THEN 'hibernated' ELSE 'terminated' END,
    CASE WHEN i % 100 = 1 THEN 'gemini-cli' WHEN i % 10 = 0 THEN 'codex' ELSE 'claude-sdk' END,
    (SELECT string_agg((ARRAY['fix','add','remove','refactor','write','test','review','deploy','login','page','api','server','client','button','form',
        'query','index','cache','queue','worker','session','agent','sandbox','token','user','error','crash','leak','memory','disk']
        )[1 + (hashint4(i * 13 + k) & 1073741823) % 30], ' ') FROM generate_series(1, 5) k) || ' #' || i,
    true, now() - ($1 - i) * interval '3 seconds', now() - (hashint4(i) & 1048575) * interval '2 seconds', 900000000000,
    json_build_object('team', 't' || (i % 5), 'ticket', 'T-' || (i / 3), 'tenant', 'c' || (i % 2000)), '{}'
FROM generate_series(1, $1) i;

INSERT INTO session_labels (label, created_at, session_id)
SELECT DISTINCT f.label, s.created_at, s.id FROM sessions s, unnest(session_facets(NULL, NULL, s.metadata)) AS f (label)
ORDER BY 1, 2, 3;

INSERT INTO session_activity (session_id, at) SELECT id, last_activity_at FROM sessions ORDER BY id;

DO $$
DECLARE
    i record;
BEGIN
    FOR i IN SELECT definition FROM indexes_to_build LOOP
        EXECUTE i.definition;
    END LOOP;
    ALTER TABLE session_labels ADD CONSTRAINT session_labels_pkey PRIMARY KEY (label, created_at, session_id);
    ALTER TABLE sessions ENABLE TRIGGER USER;
END $$;

VACUUM ANALYZE sessions, session_labels, session_activity;

DROP TABLE indexes_to_build;

SET synchronous_commit = on;
