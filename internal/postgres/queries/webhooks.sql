-- name: WebhookInsert :one
-- WebhookInsert makes the endpoint receive events from now on.
INSERT INTO webhooks (id, url, description, types, session_id, agent, metadata, sealed, after_n)
SELECT @id, @url, @description, @types::text[], @session_id, @agent, @metadata, @sealed, h.n FROM lifecycle_head h
RETURNING id, url, description, types, session_id, agent, metadata, enabled, disabled_reason, failing_since, sealed, old_sealed, rotated_until, after_n, created_at, updated_at;

-- name: WebhooksCount :one
SELECT count(*) FROM webhooks;

-- name: WebhooksLock :exec
LOCK TABLE webhooks IN SHARE ROW EXCLUSIVE MODE;

-- name: WebhookGet :one
SELECT id, url, description, types, session_id, agent, metadata, enabled, disabled_reason, failing_since, sealed, old_sealed, rotated_until, after_n, created_at, updated_at
FROM webhooks WHERE id = @id;

-- name: WebhooksPending :many
SELECT webhook_id, count(*) AS n FROM webhook_deliveries WHERE status = 'pending' AND webhook_id = ANY(@ids::text[]) GROUP BY webhook_id;

-- name: WebhookLock :one
SELECT id, url, description, types, session_id, agent, metadata, enabled, disabled_reason, failing_since, sealed, old_sealed, rotated_until, after_n, created_at, updated_at
FROM webhooks WHERE id = @id FOR UPDATE;

-- name: WebhooksList :many
SELECT id, url, description, types, session_id, agent, metadata, enabled, disabled_reason, failing_since, sealed, old_sealed, rotated_until, after_n, created_at, updated_at
FROM webhooks ORDER BY id DESC;

-- name: WebhookUpdate :exec
-- WebhookUpdate starts at the newest event if the endpoint was disabled: the endpoint does not
-- receive earlier ones.
UPDATE webhooks SET url = @url, description = @description, types = @types::text[], session_id = @session_id, agent = @agent, metadata = @metadata,
    after_n = CASE WHEN @enabled AND NOT enabled THEN (SELECT h.n FROM lifecycle_head h) ELSE after_n END,
    disabled_reason = CASE WHEN @enabled = enabled THEN disabled_reason ELSE '' END,
    failing_since = CASE WHEN @enabled AND NOT enabled THEN NULL ELSE failing_since END,
    enabled = @enabled, updated_at = clock_timestamp()
WHERE id = @id;

-- name: WebhookRotate :exec
UPDATE webhooks SET old_sealed = CASE WHEN @overlap_seconds::double precision > 0 THEN sealed END,
    rotated_until = CASE WHEN @overlap_seconds::double precision > 0 THEN clock_timestamp() + make_interval(secs => @overlap_seconds::double precision) END,
    sealed = @sealed, updated_at = clock_timestamp()
WHERE id = @id;

-- name: WebhookDelete :execrows
DELETE FROM webhooks WHERE id = @id;

-- name: WebhooksToDispatch :many
-- WebhooksToDispatch returns the endpoints that have not received the newest events, except those
-- that other transactions are dispatching to.
SELECT id, types, session_id, agent, metadata, after_n FROM webhooks w WHERE w.enabled AND w.after_n < (SELECT h.n FROM lifecycle_head h)
    AND (SELECT count(*) FROM webhook_deliveries d WHERE d.webhook_id = w.id AND d.status = 'pending') < @max_pending::bigint
ORDER BY w.id FOR UPDATE SKIP LOCKED;

-- name: WebhookDeliveriesInsert :exec
INSERT INTO webhook_deliveries (id, webhook_id, n, session_no, type, next_at)
SELECT a.id, @webhook_id, a.n, s.no, a.type, clock_timestamp()
FROM (SELECT unnest(@ids::text[]) AS id, unnest(@ns::bigint[]) AS n, unnest(@session_ids::text[]) AS session_id, unnest(@types::text[]) AS type) a
LEFT JOIN sessions s ON s.id = a.session_id
ON CONFLICT ON CONSTRAINT webhook_deliveries_once DO NOTHING;

-- name: WebhookTestInsert :exec
INSERT INTO webhook_deliveries (id, webhook_id, type, next_at) VALUES (@id, @webhook_id, @type, clock_timestamp());

-- name: WebhookAdvance :exec
UPDATE webhooks SET after_n = @after_n WHERE id = @id;

-- name: WebhookDeliveriesDue :many
-- WebhookDeliveriesDue returns deliveries whose workflow must be started: new ones, a few per
-- endpoint at a time, and those whose attempt is long overdue, because their workflow was lost.
SELECT d.id FROM webhooks w
CROSS JOIN LATERAL (
    SELECT p.id FROM webhook_deliveries p
    WHERE p.webhook_id = w.id AND p.status = 'pending' AND p.started_at IS NULL
    ORDER BY p.next_at, p.id
    LIMIT greatest(sqlc.arg(max_beginning)::bigint - (
        SELECT count(*) FROM webhook_deliveries u
        WHERE u.webhook_id = w.id AND u.status = 'pending' AND u.started_at IS NOT NULL AND u.tries = 0), 0)
) d
UNION ALL
SELECT o.id FROM webhook_deliveries o
WHERE o.status = 'pending' AND o.started_at < clock_timestamp() - make_interval(secs => @overdue_seconds::double precision)
    AND o.next_at < clock_timestamp() - make_interval(secs => @overdue_seconds::double precision)
LIMIT @max_items;

-- name: WebhookDeliveriesStarted :exec
UPDATE webhook_deliveries SET started_at = clock_timestamp() WHERE id = ANY(@ids::text[]) AND status = 'pending';

-- name: WebhookDeliveryGet :one
SELECT d.id, d.webhook_id, d.n, d.type, d.status, d.reason, d.tries, d.next_at, d.created_at, d.ended_at,
    coalesce((SELECT s.id FROM sessions s WHERE s.no = d.session_no), '')::text AS session_id
FROM webhook_deliveries d WHERE d.id = @id;

-- name: WebhookDeliveryLock :one
SELECT id, webhook_id, n, session_no, type, status, reason, tries, next_at, started_at, created_at, ended_at
FROM webhook_deliveries WHERE id = @id FOR UPDATE;

-- name: WebhookDeliveriesList :many
SELECT d.id, d.webhook_id, d.n, d.type, d.status, d.reason, d.tries, d.next_at, d.created_at, d.ended_at,
    coalesce((SELECT s.id FROM sessions s WHERE s.no = d.session_no), '')::text AS session_id
FROM webhook_deliveries d
WHERE d.webhook_id = @webhook_id AND (@before::text = '' OR d.id < @before) AND (@status::text = '' OR d.status = @status)
ORDER BY d.id DESC LIMIT @max_items;

-- name: WebhookAttempts :many
SELECT no, at, duration_ms, code, error FROM webhook_attempts WHERE delivery_id = @delivery_id ORDER BY no;

-- name: WebhookAttemptInsert :exec
INSERT INTO webhook_attempts (delivery_id, no, at, duration_ms, code, error)
SELECT @delivery_id, coalesce(max(a.no), 0) + 1, @at, @duration_ms, @code, @error FROM webhook_attempts a WHERE a.delivery_id = @delivery_id;

-- name: WebhookAttemptsTrim :exec
DELETE FROM webhook_attempts a WHERE a.delivery_id = @delivery_id
    AND a.no <= (SELECT max(b.no) FROM webhook_attempts b WHERE b.delivery_id = @delivery_id) - sqlc.arg(max_items)::integer;

-- name: WebhookDeliverySet :exec
UPDATE webhook_deliveries SET status = @status, reason = @reason, tries = tries + 1,
    next_at = CASE WHEN @status = 'pending' THEN clock_timestamp() + make_interval(secs => @pause_seconds::double precision) END,
    ended_at = CASE WHEN @status = 'pending' THEN NULL ELSE clock_timestamp() END
WHERE id = @id;

-- name: WebhookSucceeded :exec
UPDATE webhooks SET failing_since = NULL WHERE id = @id AND failing_since IS NOT NULL;

-- name: WebhookFailing :one
UPDATE webhooks SET failing_since = coalesce(failing_since, clock_timestamp()) WHERE id = @id
RETURNING (clock_timestamp() - failing_since > make_interval(secs => @most_seconds::double precision))::boolean AS too_long;

-- name: WebhookDisable :exec
UPDATE webhooks SET enabled = false, disabled_reason = @reason, updated_at = clock_timestamp() WHERE id = @id AND enabled;

-- name: WebhookDeliveriesGiveUp :exec
UPDATE webhook_deliveries SET status = 'failed', reason = @reason, next_at = NULL, ended_at = clock_timestamp()
WHERE webhook_id = @webhook_id AND status = 'pending';

-- name: WebhookRedeliver :execrows
-- WebhookRedeliver sends finished deliveries again.
UPDATE webhook_deliveries SET status = 'pending', reason = '', tries = 0, next_at = clock_timestamp(), started_at = NULL, ended_at = NULL
WHERE id = ANY(@ids::text[]) AND webhook_id = @webhook_id AND status <> 'pending';

-- name: WebhookDeliveriesOver :many
SELECT d.id FROM webhook_deliveries d
WHERE d.webhook_id = @webhook_id AND d.status = ANY(@statuses::text[]) AND d.created_at >= @since
ORDER BY d.id LIMIT @max_items;

-- name: WebhookDeliveriesDelete :execrows
DELETE FROM webhook_deliveries d USING (SELECT o.id FROM webhook_deliveries o WHERE o.ended_at < @before ORDER BY o.ended_at LIMIT @max_items) old
WHERE d.id = old.id;

-- name: WebhookSecrets :many
SELECT id, sealed, old_sealed FROM webhooks ORDER BY id;

-- name: WebhookReseal :execrows
UPDATE webhooks SET sealed = @sealed, old_sealed = @old_sealed WHERE id = @id AND sealed = @was;
