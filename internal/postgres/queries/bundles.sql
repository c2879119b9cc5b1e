-- name: SnapshotInsert :one
-- SnapshotInsert also returns whether the image may be used. An image of a session that is
-- terminated, or has been purged meanwhile, is unneeded from the start.
INSERT INTO snapshots (id, session_id, generation, expires_at, base_id, unneeded_at)
VALUES (@id, (SELECT s.id FROM sessions s WHERE s.id = @session_id::text), @generation, CASE WHEN @lifetime::float8 > 0 THEN clock_timestamp() + make_interval(secs => @lifetime::float8) END,
    (SELECT CASE WHEN p.id IS NULL THEN b.image_id ELSE p.base_id END
     FROM sandboxes b LEFT JOIN snapshots p ON p.id = b.image_id
     WHERE b.session_id = @session_id::text AND b.generation = @generation),
    CASE WHEN NOT EXISTS (SELECT FROM sessions s WHERE s.id = @session_id::text AND s.status <> 'terminated') THEN now() END)
ON CONFLICT (id) DO UPDATE SET generation = snapshots.generation
RETURNING (condemned_at IS NULL)::boolean;

-- name: SnapshotLock :one
SELECT * FROM snapshots WHERE id = @id FOR UPDATE;

-- name: SnapshotBundled :exec
UPDATE snapshots SET bundled = true WHERE id = @id;

-- name: SnapshotsRelease :exec
-- SnapshotsRelease marks the snapshots that the session no longer needs.
UPDATE snapshots n SET unneeded_at = now(), delete_after = now()
FROM snapshot_uses u
WHERE n.session_id = @session_id::text AND n.deleted_at IS NULL AND n.unneeded_at IS NULL
  AND u.id = n.id AND (u.session_over OR n.bundled AND NOT u.needed);

-- name: SnapshotsAge :exec
-- SnapshotsAge marks snapshots for which no bundle was committed in time. A snapshot whose bundle
-- was committed by an older release is marked as bundled instead.
UPDATE snapshots n SET
    bundled = EXISTS (SELECT FROM bundles b WHERE b.snapshot_id = n.id AND b.snapshot_id <> ''),
    unneeded_at = CASE WHEN NOT EXISTS (SELECT FROM bundles b WHERE b.snapshot_id = n.id AND b.snapshot_id <> '') THEN now() END
WHERE NOT n.bundled AND n.unneeded_at IS NULL AND n.deleted_at IS NULL AND n.created_at < clock_timestamp() - make_interval(secs => @seconds);

-- name: SnapshotsAudit :many
-- SnapshotsAudit checks a page of kept snapshots and adds missing marks. It returns the ids that it
-- checked.
WITH page AS (
    SELECT n.id FROM snapshots n
    WHERE n.id > @after_id AND n.unneeded_at IS NULL AND n.deleted_at IS NULL
    ORDER BY n.id LIMIT @max_items
), marked AS (
    UPDATE snapshots n SET unneeded_at = now(), delete_after = now()
    FROM snapshot_uses u
    WHERE n.id IN (SELECT page.id FROM page) AND u.id = n.id AND n.unneeded_at IS NULL
      AND (u.session_over OR n.bundled AND NOT u.needed)
)
SELECT page.id FROM page ORDER BY page.id;

-- name: SnapshotsDue :many
-- SnapshotsDue locks marked snapshots that are due.
SELECT id FROM snapshots
WHERE unneeded_at IS NOT NULL AND deleted_at IS NULL AND delete_after <= now()
ORDER BY delete_after, id LIMIT @max_items
FOR UPDATE SKIP LOCKED;

-- name: SnapshotsCondemn :many
-- SnapshotsCondemn condemns those that are still unneeded now that they are locked: from here on no
-- bundle can refer to them. Others are tried again after a pause that grows each time.
UPDATE snapshots n SET
    condemned_at = coalesce(n.condemned_at, now()),
    delete_attempts = n.delete_attempts + 1,
    delete_after = now() + least(30 * pow(2, least(n.delete_attempts, 10)), 600) * interval '1 second'
FROM snapshot_uses u
WHERE n.id = ANY(@ids::text[]) AND u.id = n.id AND (n.condemned_at IS NOT NULL OR NOT u.needed)
RETURNING n.id;

-- name: SnapshotsKeep :exec
-- SnapshotsKeep removes the mark from snapshots that a bundle still needs.
UPDATE snapshots SET unneeded_at = NULL WHERE id = ANY(@ids::text[]) AND condemned_at IS NULL;

-- name: SnapshotsForget :exec
UPDATE snapshots SET deleted_at = coalesce(deleted_at, now()), condemned_at = coalesce(condemned_at, now()), unneeded_at = coalesce(unneeded_at, now())
WHERE id = ANY(@ids::text[]);

-- name: SnapshotsRenew :many
-- SnapshotsRenew takes needed snapshots that expire soon, and reserves them for the caller for an
-- hour. A copy can replace a snapshot only in sessions that sleep, or in pinned bundles of
-- terminated ones (SnapshotReplace).
WITH due AS (
    SELECT n.id FROM snapshots n
    WHERE n.expires_at < clock_timestamp() + make_interval(secs => @seconds) AND n.unneeded_at IS NULL AND n.deleted_at IS NULL AND n.renew_after <= now()
      AND EXISTS (SELECT FROM bundles b JOIN sessions s ON s.id = b.session_id
                  WHERE b.snapshot_id = n.id AND b.snapshot_id <> '' AND (s.status IN ('hibernated', 'error') OR s.status = 'terminated' AND b.pinned_at IS NOT NULL))
      AND (SELECT u.needed FROM snapshot_uses u WHERE u.id = n.id)
    ORDER BY n.expires_at LIMIT @max_items
    FOR UPDATE OF n SKIP LOCKED
)
UPDATE snapshots n SET renew_after = now() + interval '1 hour'
FROM due WHERE n.id = due.id
RETURNING n.id, coalesce(n.session_id, (SELECT min(b.session_id) FROM bundles b WHERE b.snapshot_id = n.id AND b.snapshot_id <> ''), '')::text AS session_id, n.generation;

-- name: SnapshotReplace :execrows
-- SnapshotReplace makes the bundles of sessions restore from a copy of their snapshot, for at most
-- max_items sessions. It leaves out sessions that are awake or being changed: they may be restoring,
-- or saving with the snapshot.
WITH asleep AS (
    SELECT s.id FROM sessions s
    WHERE s.id IN (SELECT b.session_id FROM bundles b WHERE b.snapshot_id = @old_id AND b.snapshot_id <> '') AND s.status IN ('hibernated', 'error', 'terminated')
    LIMIT @max_items
    FOR NO KEY UPDATE OF s SKIP LOCKED
)
UPDATE bundles b SET snapshot_id = @new_id
FROM asleep WHERE b.session_id = asleep.id AND b.snapshot_id = @old_id AND b.snapshot_id <> '';

-- name: SnapshotReplaced :exec
-- SnapshotReplaced keeps the original for a day, because a restore may have begun with it, unless a
-- bundle still refers to it.
UPDATE snapshots n SET kept_until = now() + interval '1 day'
WHERE n.id = @id AND NOT EXISTS (SELECT FROM bundles b WHERE b.snapshot_id = n.id AND b.snapshot_id <> '');

-- name: SnapshotUnneeded :exec
UPDATE snapshots SET unneeded_at = now() WHERE id = @id;

-- name: ExitImageExpect :exec
INSERT INTO exit_images (sandbox_id, session_id, generation) VALUES (@sandbox_id, @session_id, @generation)
ON CONFLICT (sandbox_id) DO NOTHING;

-- name: ExitImagesDue :many
-- ExitImagesDue takes a page of ended sandboxes whose exit image must be found, and reserves them
-- for the caller for a while. Until a bundle of the sandbox's generation, or of a later one, is
-- committed, the image may be all that remains of it.
WITH due AS (
    SELECT e.sandbox_id FROM exit_images e
    WHERE e.next_at <= now() AND NOT EXISTS (SELECT FROM saved_generations u WHERE u.session_id = e.session_id AND u.generation < e.generation)
    ORDER BY e.next_at, e.sandbox_id LIMIT @max_items
    FOR UPDATE SKIP LOCKED
)
UPDATE exit_images e SET attempts = e.attempts + 1, next_at = now() + least(30 * pow(2, least(e.attempts, 10)), 600) * interval '1 second'
FROM due WHERE e.sandbox_id = due.sandbox_id
RETURNING e.sandbox_id, e.session_id, e.generation, e.ended_at;

-- name: ExitImagesRecord :exec
-- ExitImagesRecord stores images of ended sandboxes. An image without a bundle is unneeded: a
-- sandbox is ended only after its session has saved what it needs.
INSERT INTO snapshots (id, session_id, generation, unneeded_at, base_id)
SELECT f.id, s.id, f.generation, now(), ''
FROM (SELECT unnest(@ids::text[]) AS id, unnest(@session_ids::text[]) AS session_id, unnest(@generations::bigint[]) AS generation) f
LEFT JOIN sessions s ON s.id = f.session_id
ON CONFLICT (id) DO UPDATE SET unneeded_at = CASE WHEN snapshots.bundled THEN snapshots.unneeded_at ELSE coalesce(snapshots.unneeded_at, now()) END;

-- name: ExitImagesDone :exec
DELETE FROM exit_images WHERE sandbox_id = ANY(@sandbox_ids::text[]);

-- name: ImageIntend :exec
INSERT INTO image_intents (id, session_id, generation, source) VALUES (@id, @session_id, @generation, @source);

-- name: ImageIntentsEnd :exec
DELETE FROM image_intents WHERE id = @id;

-- name: ImageIntentsAge :execrows
-- ImageIntentsAge deletes intents so old that the images they protect no longer exist.
DELETE FROM image_intents WHERE created_at < clock_timestamp() - make_interval(secs => @seconds);

-- name: ImagesStray :many
-- ImagesStray condemns images that were found at the provider and are unknown here, and returns
-- them. An exit image is known while its sandbox has not ended or its generation is not saved,
-- since the session may still need it. A condemned image cannot become part of a bundle when a late
-- worker records it.
INSERT INTO snapshots (id, session_id, generation, unneeded_at, condemned_at, base_id)
SELECT f.id, s.id, f.generation, now(), now(), ''
FROM (SELECT unnest(@ids::text[]) AS id, unnest(@session_ids::text[]) AS session_id,
             unnest(@generations::bigint[]) AS generation, unnest(@exits::boolean[]) AS exit) f
LEFT JOIN sessions s ON s.id = f.session_id
WHERE NOT EXISTS (SELECT FROM snapshots n WHERE n.id = f.id)
  AND NOT EXISTS (SELECT FROM base_images b WHERE b.id = f.id)
  AND NOT EXISTS (SELECT FROM sandboxes b WHERE b.image_id = f.id AND b.ended_at IS NULL)
  AND NOT EXISTS (SELECT FROM snapshots n WHERE n.base_id = f.id AND n.deleted_at IS NULL)
  AND NOT (f.exit AND EXISTS (SELECT FROM sandboxes b WHERE b.session_id = f.session_id AND b.generation = f.generation AND b.ended_at IS NULL))
  AND NOT (f.exit AND EXISTS (SELECT FROM saved_generations u WHERE u.session_id = f.session_id AND u.generation < f.generation))
  AND NOT (f.exit AND EXISTS (SELECT FROM exit_images e WHERE e.session_id = f.session_id AND e.generation = f.generation))
ON CONFLICT (id) DO NOTHING
RETURNING id;

-- name: SnapshotsReturned :exec
-- SnapshotsReturned schedules another deletion of images that the provider still lists.
UPDATE snapshots SET deleted_at = NULL, delete_after = now() WHERE id = ANY(@ids::text[]) AND deleted_at < clock_timestamp() - make_interval(secs => @seconds);

-- name: BaseImageUse :one
-- BaseImageUse records that a sandbox is about to start from the image, and returns whether it may.
INSERT INTO base_images AS b (id, name) VALUES (@id, @name)
ON CONFLICT (id) DO UPDATE SET used_at = CASE WHEN b.condemned_at IS NULL THEN now() ELSE b.used_at END
RETURNING (b.condemned_at IS NULL AND NOT EXISTS (SELECT FROM snapshots n WHERE n.id = b.id AND n.condemned_at IS NOT NULL))::boolean;

-- name: BaseImagesDue :many
-- BaseImagesDue condemns base images that are not in use: no sandbox and no kept snapshot is based
-- on them (a snapshot with unknown base counts for all), none was prepared recently, and another
-- image of the same recipe has been used since.
WITH due AS (
    SELECT b.id FROM base_images b
    WHERE b.delete_after <= now() AND (b.condemned_at IS NOT NULL OR (
        b.used_at < clock_timestamp() - make_interval(secs => @seconds)
        AND EXISTS (SELECT FROM base_images o WHERE split_part(o.name, ':', 1) = split_part(b.name, ':', 1) AND o.used_at > b.used_at)
        AND NOT EXISTS (SELECT FROM sandboxes x WHERE x.image_id = b.id AND x.ended_at IS NULL)
        AND NOT EXISTS (SELECT FROM snapshots n WHERE n.base_id = b.id AND n.deleted_at IS NULL)
        AND NOT EXISTS (SELECT FROM snapshots n WHERE n.base_id IS NULL AND n.deleted_at IS NULL)
    ))
    ORDER BY b.id LIMIT @max_items
    FOR UPDATE SKIP LOCKED
)
UPDATE base_images b SET
    condemned_at = coalesce(b.condemned_at, now()),
    delete_attempts = b.delete_attempts + 1,
    delete_after = now() + least(30 * pow(2, least(b.delete_attempts, 10)), 600) * interval '1 second'
FROM due WHERE b.id = due.id
RETURNING b.id;

-- name: BaseImagesForget :exec
DELETE FROM base_images WHERE id = ANY(@ids::text[]) AND condemned_at IS NOT NULL;

-- name: ImageCounts :one
-- ImageCounts counts the images in each pending state. It does not count kept ones, which would
-- require a full scan.
SELECT
    (SELECT count(*) FROM snapshots n WHERE n.unneeded_at IS NOT NULL AND n.deleted_at IS NULL)::bigint AS unneeded,
    (SELECT count(*) FROM snapshots n WHERE n.unneeded_at IS NOT NULL AND n.deleted_at IS NULL AND n.delete_attempts > 3)::bigint AS failing,
    (SELECT count(*) FROM exit_images)::bigint AS exits,
    (SELECT count(*) FROM image_intents i WHERE i.created_at < clock_timestamp() - make_interval(secs => @seconds))::bigint AS hidden;

-- name: BundleInsert :exec
-- BundleInsert records the newest prompt that the agent has received and that was not reverted,
-- possibly the first prompt of a fork. It looks at the runs one by one, the newest first, and at the
-- prompt of each: a join might read all of them. A bundle with the snapshot of its parent shares the
-- parent's files.
INSERT INTO bundles (id, session_id, parent_id, generation, snapshot_id, manifest, verified, checkpoint, created_at, last_seq, prompt_id, outcome, files_epoch, files_of)
SELECT @id, @session_id, @parent_id, @generation, @snapshot_id, @manifest, @verified, @checkpoint, @created_at, @last_seq::bigint,
    coalesce(r.prompt_id, base.prompt_id, ''), coalesce(r.outcome, base.outcome, ''),
    CASE WHEN @snapshot_id = '' THEN NULL WHEN same.id IS NOT NULL THEN same.files_epoch
        ELSE coalesce((SELECT w.epoch FROM workspaces w WHERE w.session_id = @session_id), 0) END,
    coalesce(same.files_of, '')
FROM (SELECT 1) one
LEFT JOIN bundles base ON base.session_id = @session_id AND base.base
LEFT JOIN bundles same ON same.id = @parent_id AND same.session_id = @session_id AND same.snapshot_id = @snapshot_id
LEFT JOIN (
    SELECT x.prompt_id, CASE WHEN x.ended_at IS NULL THEN 'open' ELSE x.outcome END AS outcome
    FROM runs x
    WHERE x.session_id = @session_id
        AND (SELECT p.status <> 'queued' AND p.reason <> @reverted::text FROM prompts p WHERE p.session_id = x.session_id AND p.id = x.prompt_id)
    ORDER BY x.no DESC LIMIT 1
) r ON true;

-- name: BundleViewGet :one
SELECT * FROM bundle_views WHERE id = @id;

-- name: BundleViews :many
-- BundleViews returns bundles newest first. Their manifests omit the list of agent files, which may
-- be long.
SELECT id, no, session_id, parent_id, generation, snapshot_id,
    json_build_object('git', manifest -> 'git', 'tree', manifest -> 'tree', 'lastSeq', coalesce(manifest -> 'lastSeq', '0'),
        'runner', coalesce(manifest -> 'runner', '""'), 'lost', manifest -> 'lost') AS manifest,
    verified, checkpoint, created_at, pinned_at, receipt, restored_at, last_seq, prompt_id, outcome, is_head, has_files, archive_id
FROM bundle_views WHERE session_id = @session_id AND no < @before ORDER BY no DESC LIMIT @max_items;

-- name: BundlePin :execrows
UPDATE bundles SET pinned_at = CASE WHEN @pinned::boolean THEN coalesce(pinned_at, clock_timestamp()) END WHERE id = @id;

-- name: BundlesPinned :one
SELECT count(*) FROM bundles WHERE session_id = @session_id AND pinned_at IS NOT NULL;

-- name: BundleRestored :exec
UPDATE bundles SET receipt = @receipt, restored_at = @at::timestamptz WHERE id = @id;

-- name: BundleHeads :many
-- BundleHeads returns, for each session, its newest bundle, the newest one that ends with a
-- successful turn, what it was forked from, its checkpoint policy, and, if the next checkpoint
-- depends on it, the time of the newest bundle.
SELECT s.id AS session_id, coalesce(s.head_bundle_id, '')::text AS head, h.created_at AS head_at, p.policy,
    coalesce(f.bundle_id, '')::text AS fork_bundle, coalesce(f.prompt_id, '')::text AS fork_prompt, coalesce(f.handed_from, '')::text AS handed_from,
    coalesce((SELECT v.id FROM bundle_views v WHERE v.session_id = s.id AND v.outcome IN ('', 'completed')
        AND NOT EXISTS (SELECT FROM blocks k WHERE k.session_id = v.session_id AND k.first_seq <= v.last_seq AND k.removed_seq > v.last_seq)
        ORDER BY v.no DESC LIMIT 1), '')::text AS head_success
FROM sessions s LEFT JOIN session_forks f ON f.session_id = s.id
CROSS JOIN LATERAL (SELECT coalesce(nullif(s.options ->> 'checkpoint', ''), (SELECT i.checkpoint FROM installation i), 'hibernate')::text AS policy) p
LEFT JOIN bundles h ON h.id = s.head_bundle_id AND s.status = 'running' AND p.policy NOT IN ('hibernate', 'turn')
WHERE s.id = ANY(@session_ids::text[]) AND s.head_bundle_id IS NOT NULL;

-- name: BundlesForget :exec
-- BundlesForget deletes some of the bundles whose snapshots were deleted by a policy. It keeps the
-- newest bundle with which a sandbox ended, because that records which generations are saved; a
-- checkpoint does not.
DELETE FROM bundles b
WHERE b.session_id IN (SELECT x.session_id FROM bundles x WHERE x.snapshot_id = ANY(@ids::text[]) AND x.snapshot_id <> '')
  AND EXISTS (SELECT FROM snapshots d WHERE d.id = b.snapshot_id AND d.deleted_at IS NOT NULL) AND b.pinned_at IS NULL AND NOT b.base
  AND NOT EXISTS (SELECT FROM sessions s WHERE s.head_bundle_id = b.id)
  AND (b.checkpoint OR EXISTS (SELECT FROM bundles n WHERE n.session_id = b.session_id AND n.no > b.no AND NOT n.checkpoint AND n.generation >= b.generation));

-- name: BundleGet :one
SELECT * FROM bundles WHERE id = @id;

-- name: BundleGetHead :one
SELECT b.* FROM bundles b JOIN sessions s ON s.head_bundle_id = b.id WHERE s.id = @session_id;

-- name: SnapshotKeep :exec
-- SnapshotKeep postpones the deletion of a snapshot that could not be restored.
UPDATE snapshots SET kept_until = greatest(kept_until, clock_timestamp() + make_interval(secs => @seconds)) WHERE id = @id;

-- name: ImagesKnown :many
-- ImagesKnown lists images, except one, that should exist at the provider: the newest kept
-- snapshots, and the newest images that sandboxes were created from and that are not snapshots.
(SELECT n.id FROM snapshots n
 WHERE n.deleted_at IS NULL AND n.condemned_at IS NULL AND n.kept_until IS NULL AND n.id <> @except_id
 ORDER BY n.created_at DESC LIMIT 3)
UNION ALL
(SELECT i.image_id FROM (
    SELECT b.image_id, max(b.reserved_at) AS used FROM (SELECT image_id, reserved_at FROM sandboxes ORDER BY reserved_at DESC LIMIT 1000) b
    WHERE b.image_id <> '' AND b.image_id <> @except_id AND NOT EXISTS (SELECT FROM snapshots n WHERE n.id = b.image_id)
    GROUP BY b.image_id) i
 ORDER BY i.used DESC LIMIT 3);

-- name: BundlesRestorable :many
-- BundlesRestorable lists the bundles of a session whose snapshot is not the one that could not be
-- restored, newest first. It omits bundles that a revert has undone.
SELECT b.* FROM bundles b JOIN snapshots n ON n.id = b.snapshot_id
WHERE b.session_id = @session_id AND n.deleted_at IS NULL AND n.condemned_at IS NULL
  AND (n.kept_until IS NULL OR n.kept_until < clock_timestamp()) AND b.snapshot_id <> @except_id
  AND NOT EXISTS (SELECT FROM blocks k WHERE k.session_id = b.session_id AND k.first_seq <= b.last_seq AND k.removed_seq > b.last_seq)
ORDER BY b.no DESC
LIMIT 5;
-- name: BundleProve :one
UPDATE bundles SET proved_at = coalesce(proved_at, now()) WHERE id = @id RETURNING session_id;
