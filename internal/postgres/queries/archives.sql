-- name: ArchiveRequest :exec
-- ArchiveRequest requests an archive of a bundle. It retries one that has failed, and extends the
-- lifetime of an existing one.
INSERT INTO archives (id, bundle_id, state, expires_at) VALUES (@id, @bundle_id, @state, clock_timestamp() + make_interval(secs => @seconds::double precision))
ON CONFLICT (bundle_id) WHERE bundle_id <> '' DO UPDATE SET
    expires_at = excluded.expires_at,
    next_at = CASE WHEN archives.state = 'failed' THEN clock_timestamp() ELSE archives.next_at END,
    tries = CASE WHEN archives.state = 'failed' THEN 0 ELSE archives.tries END,
    state = CASE WHEN archives.state = 'failed' THEN 'pending' ELSE archives.state END,
    reason = '';

-- name: ArchiveOf :one
SELECT * FROM archives WHERE bundle_id = @bundle_id::text;

-- name: ArchiveGet :one
SELECT * FROM archives WHERE id = @id;

-- name: ArchivesTake :many
-- ArchivesTake leases each archive that must be made to one worker, except those of sessions that are being purged.
WITH due AS (
    SELECT d.id FROM archives d WHERE d.state = 'pending' AND d.next_at <= clock_timestamp()
      AND NOT EXISTS (SELECT FROM bundles b JOIN purges p ON p.session_id = b.session_id WHERE b.id = d.bundle_id)
    ORDER BY d.next_at LIMIT @max_items
    FOR UPDATE SKIP LOCKED
)
UPDATE archives a SET attempt = a.attempt + 1, tries = a.tries + 1, next_at = clock_timestamp() + make_interval(secs => @seconds::double precision)
FROM due WHERE a.id = due.id
RETURNING a.id, a.bundle_id, a.attempt, a.tries;

-- name: ArchiveRenew :execrows
-- ArchiveRenew renews the lease of the attempt that makes an archive.
UPDATE archives SET next_at = clock_timestamp() + make_interval(secs => @seconds::double precision)
WHERE id = @id AND attempt = @attempt AND state = 'pending';

-- name: ArchivePartPut :exec
INSERT INTO archive_parts (archive_id, attempt, n, data) VALUES (@archive_id, @attempt, @n, @data);

-- name: ArchivePartGet :one
SELECT data FROM archive_parts WHERE archive_id = @archive_id AND attempt = @attempt AND n = @n;

-- name: ArchivePartsForget :exec
-- ArchivePartsForget deletes the parts of earlier attempts.
DELETE FROM archive_parts WHERE archive_id = @archive_id AND attempt < @attempt;

-- name: ArchiveReady :execrows
UPDATE archives SET state = 'ready', bytes = @bytes WHERE id = @id AND attempt = @attempt AND state = 'pending';

-- name: ArchiveFail :exec
-- ArchiveFail schedules the next attempt after a pause, unless the failure is final.
UPDATE archives SET reason = @reason, state = CASE WHEN @final::boolean THEN 'failed' ELSE state END,
    next_at = clock_timestamp() + make_interval(secs => @seconds::double precision)
WHERE id = @id AND attempt = @attempt AND state = 'pending';

-- name: ArchivePut :exec
INSERT INTO archives (id, bundle_id, state) VALUES (@id, '', 'ready');

-- name: ArchivesCollect :execrows
-- ArchivesCollect deletes imported archives that no bundle is restored from, and exported ones that
-- have expired or whose bundle is deleted.
DELETE FROM archives a WHERE a.id = ANY(ARRAY(
    SELECT c.id FROM archives c
    WHERE CASE WHEN c.bundle_id = '' THEN NOT EXISTS (SELECT FROM bundles b WHERE b.archive_id = c.id)
        ELSE c.expires_at < clock_timestamp() OR NOT EXISTS (SELECT FROM bundles b WHERE b.id = c.bundle_id) END
    LIMIT 100 FOR UPDATE SKIP LOCKED));

-- name: PurgeArchives :exec
-- PurgeArchives deletes the archives of a session's bundles. It waits for an attempt that is storing a
-- part, which ArchivesCollect would skip; the attempt can then store no other.
DELETE FROM archives a USING bundles b WHERE b.session_id = @session_id AND a.bundle_id = b.id;

-- name: ArchivePartsAfter :many
SELECT archive_id, attempt, n, data FROM archive_parts
WHERE (archive_id, attempt, n) > (@archive_id::text, @attempt::bigint, @n::bigint) ORDER BY archive_id, attempt, n LIMIT @max_items;

-- name: ArchivePartReseal :exec
UPDATE archive_parts SET data = @data WHERE archive_id = @archive_id AND attempt = @attempt AND n = @n;

-- name: ImportSessionInsert :execrows
-- ImportSessionInsert inserts a hibernated session.
INSERT INTO sessions (id, status, agent, profile, title, title_given, workspace, parent_id, forked_from, lazy,
    created_at, last_activity_at, idle_timeout_ns, metadata, options)
SELECT @id, 'hibernated', @agent, @profile, @title, @title::text <> '', @workspace, '', '', true, @at::timestamptz, @at::timestamptz, @idle_timeout_ns, @metadata, @options
WHERE NOT EXISTS (SELECT FROM purges p WHERE p.session_id = @id);

-- name: ImportInsert :exec
INSERT INTO session_imports (session_id, memory_id, remembers, place, created_at) VALUES (@session_id, @memory_id, @remembers, @place, @at);

-- name: ImportBlock :exec
INSERT INTO blocks (session_id, conversation_id, block_id, first_seq, position, text_seq, live, removed, block, size)
VALUES (@session_id, @conversation_id, @block_id, @n, @n, @n, false, false, @block, @size);

-- name: ImportBundle :exec
INSERT INTO bundles (id, session_id, parent_id, generation, snapshot_id, manifest, verified, checkpoint, created_at, last_seq, prompt_id, outcome, base, archive_id)
VALUES (@id, @session_id, '', 0, '', @manifest, true, true, @at::timestamptz, @last_seq::bigint, @prompt_id::text, @outcome::text, true, @archive_id);

-- name: ArchiveSize :exec
UPDATE archives SET bytes = @bytes WHERE id = @id;

-- name: ArchiveLock :one
-- ArchiveLock prevents the deletion of an archive until a bundle that is restored from it is
-- committed.
SELECT id FROM archives WHERE id = @id FOR KEY SHARE;
