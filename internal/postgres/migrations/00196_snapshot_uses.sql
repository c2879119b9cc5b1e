-- +goose Up

-- As before, with the conditions of indexes. Without that of bundles_snapshot, Postgres read the
-- bundles of all sessions for each snapshot. Where scans of whole tables are disabled (see
-- genericPlans), the scan of installation, which has one row, made it read all sessions too.
CREATE OR REPLACE VIEW snapshot_uses AS
SELECT n.id, u.needed, (u.over AND NOT u.needed)::boolean AS session_over
FROM snapshots n
LEFT JOIN sessions s ON s.id = n.session_id
CROSS JOIN LATERAL (
    SELECT
        coalesce(s.status = 'terminated', true) AS over,
        coalesce(s.status <> 'terminated' AND n.kept_until > clock_timestamp(), false) OR EXISTS (
            SELECT FROM bundles b JOIN sessions o ON o.id = b.session_id
            WHERE b.snapshot_id = n.id AND b.snapshot_id <> '' AND (b.pinned_at IS NOT NULL OR o.status <> 'terminated' AND (
                b.id = o.head_bundle_id OR b.base
                OR EXISTS (SELECT FROM session_commands c WHERE c.session_id = b.session_id AND c.kind = 'revert/files' AND c.status = 'pending' AND c.bundle_id = b.id)
                OR b.no = (SELECT max(p.no) FROM bundles p WHERE p.session_id = b.session_id AND p.proved_at IS NOT NULL)
                OR b.no > greatest(
                    (SELECT max(p.no) FROM bundles p WHERE p.session_id = b.session_id AND p.proved_at IS NOT NULL),
                    (SELECT p.no FROM bundles p WHERE p.session_id = b.session_id ORDER BY p.no DESC OFFSET 3 LIMIT 1),
                    0)
                OR n.kept_until IS NULL AND b.no >= coalesce((
                    SELECT p.no FROM bundles p WHERE p.session_id = b.session_id ORDER BY p.no DESC
                    OFFSET coalesce((SELECT i.keep_bundles FROM installation i WHERE i.single), 10) - 1 LIMIT 1), 0)
            ))
        ) AS needed
) u;
