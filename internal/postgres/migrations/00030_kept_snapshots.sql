-- +goose Up

-- A snapshot that could not be restored is kept for a while even if later bundles replace it,
-- because the provider's response may have been wrong.
ALTER TABLE snapshots ADD COLUMN IF NOT EXISTS kept_until timestamptz;

CREATE OR REPLACE VIEW snapshot_uses AS
SELECT
    n.id, n.created_at, n.condemned_at, n.deleted_at,
    EXISTS (SELECT FROM bundles b WHERE b.snapshot_id = n.id)::boolean AS bundled,
    (s.status <> 'terminated' AND (coalesce(n.kept_until > clock_timestamp(), false) OR EXISTS (
        SELECT FROM bundles b WHERE b.snapshot_id = n.id
        AND b.no >= coalesce((SELECT max(p.no) FROM bundles p WHERE p.session_id = b.session_id AND p.proved_at IS NOT NULL), 0)
    )))::boolean AS needed,
    (s.status = 'terminated')::boolean AS session_over
FROM snapshots n
JOIN sessions s ON s.id = n.session_id;
