-- +goose Up

-- The point of the conversation at which a bundle was saved, and the outcome of its prompt. The
-- first three are null in bundles of earlier releases; bundle_views computes them.
ALTER TABLE bundles
    ADD COLUMN last_seq    bigint, -- newest event of the session
    ADD COLUMN prompt_id   text, -- the newest prompt in the agent's memory; empty: none
    ADD COLUMN outcome     text, -- of that prompt's run; empty: no run, open: not ended
    ADD COLUMN pinned_at   timestamptz,
    ADD COLUMN receipt     json, -- of the newest restore
    ADD COLUMN restored_at timestamptz;

-- The number of newest bundles kept for each session, whether verified or not.
ALTER TABLE installation ADD COLUMN keep_bundles integer NOT NULL DEFAULT 10 CHECK (keep_bundles BETWEEN 1 AND 1000);

-- The position at which a revert removed a block. Null: removed by the agent, or by a revert of an
-- earlier release.
ALTER TABLE blocks ADD COLUMN removed_seq bigint;

CREATE INDEX bundles_pinned ON bundles (session_id) WHERE pinned_at IS NOT NULL;

CREATE VIEW bundle_views AS
SELECT b.id, b.no, b.session_id, b.parent_id, b.generation, b.snapshot_id, b.manifest, b.verified, b.checkpoint, b.created_at,
    b.pinned_at, b.receipt, b.restored_at, p.last_seq,
    coalesce(b.prompt_id, r.prompt_id, '')::text AS prompt_id,
    coalesce(b.outcome, r.outcome, '')::text AS outcome,
    coalesce(s.head_bundle_id = b.id, false)::boolean AS is_head,
    (b.snapshot_id <> '' AND EXISTS (SELECT FROM snapshots n WHERE n.id = b.snapshot_id AND n.deleted_at IS NULL AND n.condemned_at IS NULL AND n.kept_until IS NULL))::boolean AS has_files
FROM bundles b
JOIN sessions s ON s.id = b.session_id
CROSS JOIN LATERAL (SELECT coalesce(b.last_seq, (b.manifest ->> 'lastSeq')::bigint, 0)::bigint AS last_seq) p
LEFT JOIN LATERAL (
    SELECT x.prompt_id, CASE WHEN x.ended_at IS NULL THEN 'open' ELSE x.outcome END AS outcome FROM runs x
    WHERE b.prompt_id IS NULL AND x.session_id = b.session_id AND x.began_seq <= p.last_seq
    ORDER BY x.began_seq DESC, x.started_at DESC LIMIT 1
) r ON true;

-- The uses of each snapshot by the bundles made of it. A pinned bundle needs its snapshot. In a
-- session that has not ended, so do the head, the bundle of the newest verified restore, at most
-- three newer bundles, and the newest keep_bundles bundles, unless they could not be restored.
CREATE OR REPLACE VIEW snapshot_uses AS
SELECT n.id, u.needed, (u.over AND NOT u.needed)::boolean AS session_over
FROM snapshots n
LEFT JOIN sessions s ON s.id = n.session_id
CROSS JOIN LATERAL (
    SELECT
        coalesce(s.status = 'terminated', true) AS over,
        coalesce(s.status <> 'terminated' AND n.kept_until > clock_timestamp(), false) OR EXISTS (
            SELECT FROM bundles b JOIN sessions o ON o.id = b.session_id
            WHERE b.snapshot_id = n.id AND (b.pinned_at IS NOT NULL OR o.status <> 'terminated' AND (
                b.id = o.head_bundle_id
                OR b.no = (SELECT max(p.no) FROM bundles p WHERE p.session_id = b.session_id AND p.proved_at IS NOT NULL)
                OR b.no > greatest(
                    (SELECT max(p.no) FROM bundles p WHERE p.session_id = b.session_id AND p.proved_at IS NOT NULL),
                    (SELECT p.no FROM bundles p WHERE p.session_id = b.session_id ORDER BY p.no DESC OFFSET 3 LIMIT 1),
                    0)
                OR n.kept_until IS NULL AND b.no >= coalesce((
                    SELECT p.no FROM bundles p WHERE p.session_id = b.session_id ORDER BY p.no DESC
                    OFFSET coalesce((SELECT i.keep_bundles FROM installation i), 10) - 1 LIMIT 1), 0)
            ))
        ) AS needed
) u;
