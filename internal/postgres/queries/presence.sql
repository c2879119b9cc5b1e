-- name: PresenceRenew :exec
-- PresenceRenew stores clients as present from now on for a limited time, all clients of an api in
-- one statement.
INSERT INTO presences AS p (client, session_id, user_id, name, expires_at)
SELECT c.client, c.session_id, c.user_id, c.name, now() + make_interval(secs => @seconds::float8)
FROM (
    SELECT unnest(@clients::text[]) AS client, unnest(@session_ids::text[]) AS session_id, unnest(@user_ids::text[]) AS user_id, unnest(@names::text[]) AS name
) c ORDER BY c.client
ON CONFLICT (client) DO UPDATE SET expires_at = EXCLUDED.expires_at;

-- name: PresenceEnd :exec
DELETE FROM presences WHERE client = ANY (@clients::text[]);

-- name: PresenceRead :many
-- PresenceRead counts the clients of sessions by user.
SELECT session_id, user_id, min(name)::text AS name, count(*) AS clients
FROM presences WHERE session_id = ANY (@session_ids::text[]) AND expires_at > now()
GROUP BY session_id, user_id ORDER BY session_id, user_id;

-- name: PresenceSweep :exec
-- PresenceSweep deletes rows that expired some time ago, left by apis that crashed. The table is
-- small.
DELETE FROM presences WHERE expires_at < now() - interval '1 minute';
