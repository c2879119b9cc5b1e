-- +goose Up

-- Statuses are text with a CHECK constraint rather than enums: adding one only replaces the
-- constraint, within a transaction. Agent output is json, not jsonb, because jsonb rejects the
-- escape \u0000 and reorders keys.

CREATE TABLE installation (
    single     boolean     NOT NULL DEFAULT true,
    id         text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- Sandbox settings as reported by the newest worker, for health checks of the api, which never
    -- talks to a sandbox.
    sandbox_driver    text NOT NULL DEFAULT '',
    sandbox_isolation text NOT NULL DEFAULT '',
    CONSTRAINT installation_pkey PRIMARY KEY (single),
    CONSTRAINT installation_single CHECK (single)
);

-- A session's row is also its lock: every writer of session data locks it first, and a writer of
-- several sessions locks them in the order of their ids. last_seq, last_ordinal, generation and
-- transition_no are counters protected by that lock. The fill factor leaves room for the in-place
-- (HOT) update that every append makes; no column that an append changes is indexed.
CREATE TABLE sessions (
    id               text             NOT NULL,
    status           text             NOT NULL,
    status_reason    text             NOT NULL DEFAULT '',
    agent            text             NOT NULL,
    profile          text             NOT NULL DEFAULT '',
    title            text             NOT NULL DEFAULT '',
    title_given      boolean          NOT NULL DEFAULT false, -- given by a person, not by the agent
    workspace        json,
    parent_id        text             NOT NULL DEFAULT '',
    forked_from      text             NOT NULL DEFAULT '',
    lazy             boolean          NOT NULL,
    created_at       timestamptz      NOT NULL,
    last_activity_at timestamptz      NOT NULL,
    idle_timeout_ns  bigint           NOT NULL,
    metadata         json             NOT NULL,
    options          json             NOT NULL,
    generation       bigint           NOT NULL DEFAULT 0,
    transition_no    bigint           NOT NULL DEFAULT 0,
    receipt          json,
    loaded           boolean          NOT NULL DEFAULT false,
    running_since    timestamptz,
    active_seconds   double precision NOT NULL DEFAULT 0,
    messages         bigint           NOT NULL DEFAULT 0,
    tool_calls       bigint           NOT NULL DEFAULT 0,
    input_tokens     bigint           NOT NULL DEFAULT 0,
    output_tokens    bigint           NOT NULL DEFAULT 0,
    cost_usd         double precision NOT NULL DEFAULT 0,
    head_bundle_id   text,
    last_ordinal     bigint           NOT NULL DEFAULT 0,
    first_seq        bigint           NOT NULL DEFAULT 1, -- oldest event after retention
    last_seq         bigint           NOT NULL DEFAULT 0,
    CONSTRAINT sessions_pkey PRIMARY KEY (id),
    CONSTRAINT sessions_status CHECK (status IN ('initializing', 'running', 'hibernating', 'hibernated', 'restoring', 'terminated', 'error')),
    CONSTRAINT sessions_idle_timeout CHECK (idle_timeout_ns > 0),
    CONSTRAINT sessions_running_since CHECK ((status = 'running') = (running_since IS NOT NULL)),
    CONSTRAINT sessions_seqs CHECK (first_seq >= 1 AND last_seq >= first_seq - 1)
) WITH (fillfactor = 70);

CREATE INDEX sessions_newest ON sessions (created_at DESC, id DESC);
-- Sessions that the relay reads: neither ended nor loaded.
CREATE INDEX sessions_left_open ON sessions (id) WHERE NOT loaded AND status <> 'terminated';

CREATE TABLE session_transitions (
    session_id  text        NOT NULL,
    no          bigint      NOT NULL,
    from_status text        NOT NULL,
    to_status   text        NOT NULL,
    event       text        NOT NULL,
    reason      text        NOT NULL,
    generation  bigint      NOT NULL,
    receipt     json,
    at          timestamptz NOT NULL,
    CONSTRAINT session_transitions_pkey PRIMARY KEY (session_id, no),
    CONSTRAINT session_transitions_session FOREIGN KEY (session_id) REFERENCES sessions (id) ON DELETE CASCADE,
    CONSTRAINT session_transitions_no CHECK (no >= 1),
    CONSTRAINT session_transitions_from CHECK (from_status IN ('initializing', 'running', 'hibernating', 'hibernated', 'restoring', 'error')),
    CONSTRAINT session_transitions_to CHECK (to_status IN ('running', 'hibernating', 'hibernated', 'restoring', 'terminated', 'error'))
);

CREATE TABLE prompts (
    session_id text        NOT NULL,
    id         text        NOT NULL,
    ordinal    bigint      NOT NULL,
    status     text        NOT NULL,
    content    text        NOT NULL,
    mode       text        NOT NULL,
    on_unknown text        NOT NULL,
    author     text        NOT NULL,
    run_id     text        NOT NULL DEFAULT '',
    reason     text        NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL,
    started_at timestamptz,
    ended_at   timestamptz,
    CONSTRAINT prompts_pkey PRIMARY KEY (session_id, id),
    CONSTRAINT prompts_ordinal UNIQUE (session_id, ordinal),
    CONSTRAINT prompts_session FOREIGN KEY (session_id) REFERENCES sessions (id) ON DELETE CASCADE,
    CONSTRAINT prompts_status CHECK (status IN ('queued', 'processing', 'completed', 'failed', 'cancelled', 'unknown')),
    CONSTRAINT prompts_mode CHECK (mode IN ('followup', 'steer', 'collect')),
    CONSTRAINT prompts_on_unknown CHECK (on_unknown IN ('hold', 'retry', 'fail')),
    CONSTRAINT prompts_processing_has_run CHECK (status <> 'processing' OR (run_id <> '' AND started_at IS NOT NULL)),
    CONSTRAINT prompts_over_has_end CHECK ((status IN ('queued', 'processing')) = (ended_at IS NULL))
);

CREATE INDEX prompts_unfinished ON prompts (session_id, ordinal) INCLUDE (status) WHERE status IN ('queued', 'processing');

CREATE TABLE runs (
    id            text             NOT NULL,
    session_id    text             NOT NULL,
    prompt_id     text             NOT NULL,
    generation    bigint           NOT NULL,
    attempt       bigint           NOT NULL DEFAULT 0,
    token         text             NOT NULL DEFAULT '', -- empty: no attempt may append
    last_frame    bigint           NOT NULL DEFAULT -1,
    translator    bytea,
    outcome       text             NOT NULL DEFAULT '', -- empty until it ends
    reason        text             NOT NULL DEFAULT '',
    model         text             NOT NULL DEFAULT '',
    input_tokens  bigint           NOT NULL DEFAULT 0,
    output_tokens bigint           NOT NULL DEFAULT 0,
    cost_usd      double precision NOT NULL DEFAULT 0,
    tool_calls    bigint           NOT NULL DEFAULT 0,
    started_at    timestamptz      NOT NULL,
    ended_at      timestamptz,
    CONSTRAINT runs_pkey PRIMARY KEY (id),
    CONSTRAINT runs_prompt FOREIGN KEY (session_id, prompt_id) REFERENCES prompts (session_id, id) ON DELETE CASCADE,
    CONSTRAINT runs_outcome CHECK (outcome IN ('', 'completed', 'failed', 'cancelled', 'unknown')),
    CONSTRAINT runs_over_has_end CHECK ((outcome = '') = (ended_at IS NULL))
) WITH (fillfactor = 70);

CREATE INDEX runs_session ON runs (session_id);
-- One turn per session at a time.
CREATE UNIQUE INDEX runs_one_open ON runs (session_id) WHERE ended_at IS NULL;

CREATE TABLE events (
    session_id      text        NOT NULL,
    seq             bigint      NOT NULL,
    type            text        NOT NULL,
    conversation_id text        NOT NULL,
    run_id          text        NOT NULL,
    frame           bigint, -- null for events of the store itself
    n               integer,
    at              timestamptz NOT NULL,
    data            json        NOT NULL,
    CONSTRAINT events_pkey PRIMARY KEY (session_id, seq),
    CONSTRAINT events_session FOREIGN KEY (session_id) REFERENCES sessions (id) ON DELETE CASCADE,
    CONSTRAINT events_seq CHECK (seq >= 1),
    CONSTRAINT events_frame_and_n CHECK ((frame IS NULL) = (n IS NULL))
);

-- Each frame is translated once. runs.last_frame ensures this; the index is a second check.
CREATE UNIQUE INDEX events_run_frame ON events (run_id, frame, n) WHERE frame IS NOT NULL;

-- The fold of the events. A removed block remains as a tombstone, to preserve the order in which
-- conversations appeared. Text deltas of a live block after text_seq are stored in events only:
-- readers append them, and the end of the run stores them with the block.
CREATE TABLE blocks (
    session_id      text    NOT NULL,
    conversation_id text    NOT NULL,
    block_id        text    NOT NULL,
    first_seq       bigint  NOT NULL, -- where it appeared first
    position        bigint  NOT NULL, -- its position in the conversation
    text_seq        bigint  NOT NULL, -- the newest event whose text is in block
    live            boolean NOT NULL, -- deltas may follow
    removed         boolean NOT NULL,
    block           json    NOT NULL,
    CONSTRAINT blocks_pkey PRIMARY KEY (session_id, conversation_id, block_id),
    CONSTRAINT blocks_session FOREIGN KEY (session_id) REFERENCES sessions (id) ON DELETE CASCADE
);

CREATE TABLE transcripts (
    session_id  text        NOT NULL,
    path        text        NOT NULL,
    version     bigint      NOT NULL,
    start       bigint      NOT NULL, -- offset of the first byte in the file
    size        bigint      NOT NULL, -- bytes before compression
    run_id      text        NOT NULL,
    data        bytea       NOT NULL, -- one zstd frame
    recorded_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT transcripts_pkey PRIMARY KEY (session_id, path, version, start),
    CONSTRAINT transcripts_session FOREIGN KEY (session_id) REFERENCES sessions (id) ON DELETE CASCADE,
    CONSTRAINT transcripts_range CHECK (start >= 0 AND size >= 0)
);
-- Already compressed.
ALTER TABLE transcripts ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE snapshots (
    id           text        NOT NULL,
    session_id   text        NOT NULL,
    generation   bigint      NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    condemned_at timestamptz, -- selected for deletion: no bundle may use it
    deleted_at   timestamptz, -- deleted at the provider
    CONSTRAINT snapshots_pkey PRIMARY KEY (id),
    CONSTRAINT snapshots_session FOREIGN KEY (session_id) REFERENCES sessions (id)
);

CREATE INDEX snapshots_kept ON snapshots (created_at, session_id) WHERE deleted_at IS NULL;

CREATE TABLE bundles (
    id          text        NOT NULL,
    no          bigint      NOT NULL GENERATED ALWAYS AS IDENTITY, -- order of commit
    session_id  text        NOT NULL,
    parent_id   text        NOT NULL,
    generation  bigint      NOT NULL,
    snapshot_id text        NOT NULL, -- empty: there are only transcripts
    manifest    json        NOT NULL,
    verified    boolean     NOT NULL,
    created_at  timestamptz NOT NULL,
    proved_at   timestamptz, -- a restore has matched the manifest
    CONSTRAINT bundles_pkey PRIMARY KEY (id),
    CONSTRAINT bundles_session FOREIGN KEY (session_id) REFERENCES sessions (id) ON DELETE CASCADE
);

CREATE INDEX bundles_order ON bundles (session_id, no);
CREATE INDEX bundles_snapshot ON bundles (snapshot_id) WHERE snapshot_id <> '';

ALTER TABLE sessions ADD CONSTRAINT sessions_head_bundle FOREIGN KEY (head_bundle_id) REFERENCES bundles (id);

CREATE TABLE sandboxes (
    session_id  text        NOT NULL,
    generation  bigint      NOT NULL,
    sandbox_id  text        NOT NULL DEFAULT '', -- empty: requested, not yet known to exist
    image_id    text        NOT NULL,
    status      text        NOT NULL DEFAULT 'starting',
    reserved_at timestamptz NOT NULL,
    ready_at    timestamptz, -- its runner answered
    deadline    timestamptz, -- when the provider ends it
    seen_at     timestamptz,
    ended_at    timestamptz,
    end_reason  text        NOT NULL DEFAULT '',
    CONSTRAINT sandboxes_pkey PRIMARY KEY (session_id, generation),
    CONSTRAINT sandboxes_session FOREIGN KEY (session_id) REFERENCES sessions (id),
    CONSTRAINT sandboxes_generation CHECK (generation >= 1),
    CONSTRAINT sandboxes_status CHECK (status IN ('starting', 'ready', 'unhealthy', 'terminated')),
    CONSTRAINT sandboxes_ended CHECK ((status = 'terminated') = (ended_at IS NOT NULL))
);

CREATE INDEX sandboxes_open ON sandboxes (session_id, generation) WHERE ended_at IS NULL;

CREATE TABLE idempotency_keys (
    key        text        NOT NULL,
    digest     text        NOT NULL,
    session_id text        NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT idempotency_keys_pkey PRIMARY KEY (key),
    -- The key is inserted before the session, so that the second of two concurrent creates waits
    -- for the first and creates no session.
    CONSTRAINT idempotency_keys_session FOREIGN KEY (session_id) REFERENCES sessions (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED
);

CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);

-- A session as shown to clients. The sandbox is included while the session may own one and its
-- newest generation is known to exist.
CREATE VIEW session_views AS
SELECT
    s.id, s.status, s.status_reason, s.agent, s.profile, s.title, s.workspace, s.parent_id, s.forked_from, s.lazy,
    s.created_at, s.last_activity_at, s.idle_timeout_ns, s.metadata, s.options, s.generation, s.transition_no,
    s.receipt, s.loaded, s.active_seconds, s.messages, s.tool_calls, s.input_tokens, s.output_tokens, s.cost_usd,
    (SELECT count(*) FROM prompts p WHERE p.session_id = s.id AND p.status = 'queued')::bigint AS queued,
    (SELECT count(*) FROM prompts p WHERE p.session_id = s.id AND p.status = 'processing')::bigint AS processing,
    coalesce(b.sandbox_id, '')::text AS sandbox_id,
    coalesce(b.status, '')::text AS sandbox_status,
    coalesce(b.seen_at, b.reserved_at, s.created_at)::timestamptz AS sandbox_seen_at
FROM sessions s
LEFT JOIN sandboxes b ON b.session_id = s.id AND b.generation = s.generation AND b.sandbox_id <> '' AND b.ended_at IS NULL
    AND s.status NOT IN ('hibernated', 'terminated');

-- Bundles that need their snapshot: the newest bundle verified by a restore and all newer ones,
-- until the session is terminated.
CREATE VIEW snapshot_uses AS
SELECT
    n.id, n.created_at, n.condemned_at, n.deleted_at,
    EXISTS (SELECT FROM bundles b WHERE b.snapshot_id = n.id)::boolean AS bundled,
    (s.status <> 'terminated' AND EXISTS (
        SELECT FROM bundles b WHERE b.snapshot_id = n.id
        AND b.no >= coalesce((SELECT max(p.no) FROM bundles p WHERE p.session_id = b.session_id AND p.proved_at IS NOT NULL), 0)
    ))::boolean AS needed,
    (s.status = 'terminated')::boolean AS session_over
FROM snapshots n
JOIN sessions s ON s.id = n.session_id;
