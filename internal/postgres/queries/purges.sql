-- name: PurgeInsert :exec
INSERT INTO purges (session_id, state) VALUES (@session_id, 'stopping') ON CONFLICT (session_id) DO NOTHING;

-- name: PurgeGet :one
SELECT session_id, state, requested_at FROM purges WHERE session_id = @session_id;

-- name: PurgeSet :exec
-- PurgeSet changes nothing if another worker has moved the purge further, or if a workflow that
-- began late has reset it (PurgeResume): a purge is erased only after a check.
UPDATE purges SET state = @state, attempts = 0, next_at = clock_timestamp() + make_interval(secs => @pause_seconds::double precision),
    erased_at = CASE WHEN @state = 'erased' THEN clock_timestamp() END
WHERE session_id = @session_id
    AND CASE WHEN @state = 'erased' THEN state = 'checking'
        ELSE array_position('{stopping,erasing,checking,erased}'::text[], state) <= array_position('{stopping,erasing,checking,erased}'::text[], @state) END;

-- name: PurgeResume :exec
-- PurgeResume makes a purge erase a workflow that began after the session's row was deleted.
UPDATE purges SET state = 'erasing', attempts = 0, next_at = clock_timestamp(), erased_at = NULL
WHERE session_id = @session_id AND state IN ('checking', 'erased');

-- name: SessionScrub :exec
-- SessionScrub removes all text by people or agents from the row of a session, and makes readers of
-- its log get an error that the events are gone.
UPDATE sessions SET title = '', metadata = '{}', workspace = NULL, options = '{}', profile = '', status_reason = '', error_cause = '',
    receipt = NULL, parent_id = '', forked_from = '', first_seq = last_seq + 1
WHERE id = @id AND status = 'terminated';

-- name: SnapshotsPurge :exec
UPDATE snapshots SET unneeded_at = coalesce(unneeded_at, clock_timestamp()), kept_until = NULL
WHERE session_id = @session_id::text AND deleted_at IS NULL AND (unneeded_at IS NULL OR kept_until IS NOT NULL);

-- name: BundlesUnpin :exec
UPDATE bundles SET pinned_at = NULL WHERE session_id = @session_id AND pinned_at IS NOT NULL;

-- name: ImageIntentsOf :many
SELECT id FROM image_intents WHERE session_id = @session_id;

-- name: ImagesLeft :one
-- ImagesLeft counts the images of a session that may remain at the provider.
SELECT ((SELECT count(*) FROM snapshots WHERE session_id = @session_id::text AND deleted_at IS NULL)
    + (SELECT count(*) FROM exit_images WHERE session_id = @session_id::text))::bigint AS images;

-- name: SessionHeadClear :exec
UPDATE sessions SET head_bundle_id = NULL WHERE id = @id;

-- name: SessionDelete :execrows
-- SessionDelete deletes nothing while the session has events, or images that were recorded after
-- the purge searched for them.
DELETE FROM sessions s WHERE s.id = @id AND s.status = 'terminated'
    AND NOT EXISTS (SELECT FROM event_log e WHERE e.session_no = s.no)
    AND NOT EXISTS (SELECT FROM snapshots n WHERE n.session_id = s.id)
    AND NOT EXISTS (SELECT FROM exit_images x WHERE x.session_id = s.id);

-- name: EventsDelete :execrows
-- EventsDelete deletes the oldest events through a position, at most max_items.
WITH oldest AS (
    SELECT e.session_no, e.seq FROM event_log e
    WHERE e.session_no = @session_no AND e.seq <= @through ORDER BY e.seq LIMIT @max_items
)
DELETE FROM event_log l USING oldest WHERE l.session_no = oldest.session_no AND l.seq = oldest.seq;

-- name: SessionNo :one
SELECT no FROM sessions WHERE id = @id;

-- name: PurgesOpen :one
SELECT count(*) FROM purges WHERE state <> 'erased';

-- name: SessionsRetention :many
-- SessionsRetention returns sessions that were terminated before a time and are not being purged,
-- oldest first.
SELECT t.session_id FROM session_transitions t
WHERE t.to_status = 'terminated' AND t.at < clock_timestamp() - make_interval(secs => @age_seconds::double precision)
    AND NOT EXISTS (SELECT 1 FROM purges p WHERE p.session_id = t.session_id)
ORDER BY t.at, t.session_id LIMIT @max_items;

-- name: PurgesTake :many
-- PurgesTake leases each purge to one worker until the next attempt, with a growing pause.
WITH due AS (
    SELECT d.session_id FROM purges d WHERE d.state <> 'erased' AND d.next_at <= clock_timestamp()
    ORDER BY d.next_at LIMIT @max_items
    FOR UPDATE SKIP LOCKED
)
UPDATE purges p SET attempts = p.attempts + 1,
    next_at = clock_timestamp() + make_interval(secs => least(60, power(2, 1 + least(p.attempts, 6))))
FROM due WHERE p.session_id = due.session_id
RETURNING p.session_id, p.state, p.requested_at;

-- name: PurgeRenew :exec
-- PurgeRenew renews the lease of the worker that carries out a purge.
UPDATE purges SET next_at = greatest(next_at, clock_timestamp() + make_interval(secs => @pause_seconds::double precision))
WHERE session_id = @session_id AND state <> 'erased';

-- name: EventsRetention :many
-- EventsRetention reads the next sessions in the order of their numbers and returns, among those
-- that sleep or are terminated, the ones with events to delete: the oldest event is from before a
-- time, or its deletion has already begun.
SELECT s.no, s.id, (s.status IN ('hibernated', 'terminated') AND s.last_seq > s.first_seq AND (
        SELECT e.at < clock_timestamp() - make_interval(secs => @age_seconds::double precision)
        FROM event_log e WHERE e.session_no = s.no AND e.seq >= s.first_seq ORDER BY e.seq LIMIT 1)
    OR s.first_seq > 1 AND EXISTS (SELECT FROM event_log e WHERE e.session_no = s.no AND e.seq < s.first_seq))::boolean AS due
FROM sessions s WHERE s.no > @after_no ORDER BY s.no LIMIT @max_items;

-- name: EventsBefore :one
-- EventsBefore returns the position before the oldest event that is not older than a time, among
-- the first max_items events.
SELECT coalesce(min(o.seq) FILTER (WHERE o.at >= clock_timestamp() - make_interval(secs => @age_seconds::double precision)) - 1, max(o.seq), 0)::bigint AS through
FROM (
    SELECT e.seq, e.at FROM event_log e
    WHERE e.session_no = @session_no AND e.seq >= @first_seq ORDER BY e.seq LIMIT @max_items
) o;
