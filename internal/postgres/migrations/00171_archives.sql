-- +goose Up

-- Portable archives: exports of bundles, and imports that sessions were created from.
CREATE TABLE archives (
    id         text        NOT NULL,
    bundle_id  text        NOT NULL, -- its source; empty: it was imported
    state      text        NOT NULL CHECK (state IN ('pending', 'ready', 'failed')),
    reason     text        NOT NULL DEFAULT '', -- why it failed
    attempt    bigint      NOT NULL DEFAULT 0, -- the newest attempt to make it; only its parts are valid
    tries      bigint      NOT NULL DEFAULT 0, -- attempts since it was requested
    bytes      bigint      NOT NULL DEFAULT 0,
    next_at    timestamptz NOT NULL DEFAULT now(), -- of the next attempt
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz, -- null: kept as long as a bundle is restored from it
    CONSTRAINT archives_pkey PRIMARY KEY (id)
);
CREATE UNIQUE INDEX archives_bundle ON archives (bundle_id) WHERE bundle_id <> '';
CREATE INDEX archives_pending ON archives (next_at) WHERE state = 'pending';

-- The bytes of an archive, encrypted.
CREATE TABLE archive_parts (
    archive_id text   NOT NULL,
    attempt    bigint NOT NULL,
    n          bigint NOT NULL,
    data       bytea  NOT NULL,
    CONSTRAINT archive_parts_pkey PRIMARY KEY (archive_id, attempt, n),
    CONSTRAINT archive_parts_archive FOREIGN KEY (archive_id) REFERENCES archives (id) ON DELETE CASCADE
);

-- The archive from which a bundle without a snapshot is restored; empty: none.
ALTER TABLE bundles ADD COLUMN archive_id text NOT NULL DEFAULT '';
CREATE INDEX bundles_archive ON bundles (archive_id) WHERE archive_id <> '';

-- The origin of imported sessions.
CREATE TABLE session_imports (
    session_id text        NOT NULL,
    memory_id  text        NOT NULL, -- the session under whose name the agent keeps its memory
    remembers  boolean     NOT NULL, -- whether such a memory exists
    place      text        NOT NULL, -- a text for people
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT session_imports_pkey PRIMARY KEY (session_id),
    CONSTRAINT session_imports_session FOREIGN KEY (session_id) REFERENCES sessions (id) ON DELETE CASCADE
);

-- As before; a bundle with an archive also has files.
CREATE OR REPLACE VIEW bundle_views AS
SELECT b.id, b.no, b.session_id, b.parent_id, b.generation, b.snapshot_id, b.manifest, b.verified, b.checkpoint, b.created_at,
    b.pinned_at, b.receipt, b.restored_at, p.last_seq,
    coalesce(b.prompt_id, r.prompt_id, '')::text AS prompt_id,
    coalesce(b.outcome, r.outcome, '')::text AS outcome,
    coalesce(s.head_bundle_id = b.id, false)::boolean AS is_head,
    (b.archive_id <> '' OR b.snapshot_id <> '' AND EXISTS (SELECT FROM snapshots n WHERE n.id = b.snapshot_id AND n.deleted_at IS NULL AND n.condemned_at IS NULL AND n.kept_until IS NULL))::boolean AS has_files,
    b.archive_id
FROM bundles b
JOIN sessions s ON s.id = b.session_id
CROSS JOIN LATERAL (SELECT coalesce(b.last_seq, (b.manifest ->> 'lastSeq')::bigint, 0)::bigint AS last_seq) p
LEFT JOIN LATERAL (
    SELECT x.prompt_id, CASE WHEN x.ended_at IS NULL THEN 'open' ELSE x.outcome END AS outcome FROM runs x
    WHERE b.prompt_id IS NULL AND x.session_id = b.session_id AND x.began_seq <= p.last_seq
    ORDER BY x.began_seq DESC, x.started_at DESC LIMIT 1
) r ON true;
