-- +goose Up

-- The origin of forked sessions. The row is deleted with the fork, not with its parent.
CREATE TABLE session_forks (
    session_id text        NOT NULL,
    parent_id  text        NOT NULL, -- may have been purged
    bundle_id  text        NOT NULL, -- of the parent; may have been deleted
    prompt_id  text        NOT NULL, -- the newest prompt in the agent's memory; empty: none
    memory_id  text        NOT NULL, -- the session under whose name the agent keeps its memory
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT session_forks_pkey PRIMARY KEY (session_id),
    CONSTRAINT session_forks_session FOREIGN KEY (session_id) REFERENCES sessions (id) ON DELETE CASCADE
);
CREATE INDEX session_forks_parent ON session_forks (parent_id, session_id);

-- Whether the bundle is the first one of a fork: a copy of a bundle of the parent, with the same
-- snapshot.
ALTER TABLE bundles ADD COLUMN base boolean NOT NULL DEFAULT false;

-- As before; a session that has not ended also needs its base bundle.
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
                b.id = o.head_bundle_id OR b.base
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
