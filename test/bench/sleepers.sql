SET synchronous_commit = off;
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
VACUUM ANALYZE sessions;
SET synchronous_commit = on;
