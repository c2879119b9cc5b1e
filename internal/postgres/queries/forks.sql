-- name: ForkSessionInsert :execrows
-- ForkSessionInsert inserts a session that sleeps. It inserts nothing where the id belonged to a session that was purged, or where what it
-- is forked from is being purged.
INSERT INTO sessions (id, status, agent, profile, title, title_given, workspace, parent_id, forked_from, lazy,
    created_at, last_activity_at, idle_timeout_ns, metadata, options)
SELECT @id, 'hibernated', s.agent, @profile, @title, @title_given::boolean, s.workspace, '', s.id, true, @at::timestamptz, @at::timestamptz, s.idle_timeout_ns, s.metadata, s.options
FROM sessions s
WHERE s.id = @parent_id AND NOT EXISTS (SELECT FROM purges p WHERE p.session_id IN (@id, @parent_id));

-- name: ForkInsert :exec
INSERT INTO session_forks (session_id, parent_id, bundle_id, prompt_id, memory_id, created_at)
VALUES (@session_id, @parent_id, @bundle_id, @prompt_id,
    coalesce((SELECT f.memory_id FROM session_forks f WHERE f.session_id = @parent_id),
        (SELECT i.memory_id FROM session_imports i WHERE i.session_id = @parent_id), @parent_id), @at);

-- name: ForkBundle :exec
-- ForkBundle copies a bundle for a fork, as its head.
INSERT INTO bundles (id, session_id, parent_id, generation, snapshot_id, manifest, verified, checkpoint, created_at, last_seq, prompt_id, outcome, base, archive_id)
SELECT @id, @session_id, v.id, 0, v.snapshot_id, v.manifest, v.verified, true, @at::timestamptz, @last_seq::bigint, v.prompt_id, v.outcome, true, v.archive_id
FROM bundle_views v WHERE v.id = @bundle_id;

-- name: ForkBlocks :execrows
-- ForkBlocks copies the blocks that a session had at an event, numbered from 1 on in their order.
INSERT INTO blocks (session_id, conversation_id, block_id, first_seq, position, text_seq, live, removed, block, size)
SELECT @session_id, b.conversation_id, b.block_id, b.n, b.n, b.n, false, false, b.block, b.size
FROM (
    SELECT k.*, row_number() OVER (ORDER BY k.first_seq) AS n FROM blocks k
    WHERE k.session_id = @parent_id AND k.first_seq <= @through_seq AND (NOT k.removed OR k.removed_seq > @through_seq)
) b;

-- name: ForkConversations :exec
-- ForkConversations numbers the conversations of the copied blocks.
INSERT INTO event_conversations (session_no, no, id)
SELECT @session_no, 1 + row_number() OVER (ORDER BY min(b.first_seq)), b.conversation_id
FROM blocks b WHERE b.session_id = @session_id AND b.conversation_id <> 'main' GROUP BY b.conversation_id;

-- name: ForkEvents :exec
-- ForkEvents writes one event for each copied block, from which readers fold the same conversation.
INSERT INTO event_log (session_no, seq, at, run_no, conversation_no, type, data)
SELECT @session_no, b.first_seq, @at::timestamptz, 0,
    CASE b.conversation_id WHEN 'main' THEN 1 ELSE (SELECT c.no FROM event_conversations c WHERE c.session_no = @session_no AND c.id = b.conversation_id) END,
    'block_complete', '{"block":' || b.block::text || '}'
FROM blocks b WHERE b.session_id = @session_id;

-- name: ForkAttachments :exec
INSERT INTO attachments (session_id, id, origin, name, media_type, bytes, content, created_at)
SELECT @session_id, a.id, a.origin, a.name, a.media_type, a.bytes, a.content, a.created_at
FROM attachments a WHERE a.session_id = @parent_id AND a.created_at <= @before::timestamptz;

-- name: BundleAfterPrompt :one
-- BundleAfterPrompt is the newest bundle whose memory ends with a prompt, if its snapshot is kept.
SELECT id FROM bundle_views WHERE session_id = @session_id AND prompt_id = @prompt_id AND outcome <> 'open' AND has_files ORDER BY no DESC LIMIT 1;

-- name: BundleBeforePrompt :one
-- BundleBeforePrompt is the newest bundle between a prompt's first turn and the turn before it. One whose memory a revert has
-- shortened before that turn is not what the prompt was sent to.
SELECT v.id FROM bundle_views v
WHERE v.session_id = @session_id AND v.last_seq < @began_seq::bigint AND v.outcome <> 'open' AND v.has_files
  AND NOT EXISTS (SELECT FROM runs r WHERE r.session_id = v.session_id AND r.began_seq > v.last_seq AND r.began_seq < @began_seq::bigint)
  AND NOT EXISTS (SELECT FROM blocks k WHERE k.session_id = v.session_id AND k.first_seq <= v.last_seq AND k.removed_seq > v.last_seq AND k.removed_seq < @began_seq::bigint)
ORDER BY v.no DESC LIMIT 1;

-- name: PromptBegan :one
-- PromptBegan is where the first turn of a prompt begins; 0 if it has had none.
SELECT coalesce(min(r.began_seq), 0)::bigint FROM runs r WHERE r.session_id = @session_id AND r.prompt_id = @prompt_id;

-- name: BundlesNear :one
-- BundlesNear are the newest bundle before an event and the oldest one after it, of those whose snapshot is kept.
SELECT
    coalesce((SELECT v.id FROM bundle_views v WHERE v.session_id = @session_id AND v.last_seq < @seq::bigint AND v.has_files AND v.outcome <> 'open' ORDER BY v.no DESC LIMIT 1), '')::text AS before,
    coalesce((SELECT v.id FROM bundle_views v WHERE v.session_id = @session_id AND v.last_seq >= @seq::bigint AND v.has_files AND v.outcome <> 'open' ORDER BY v.no LIMIT 1), '')::text AS after;

-- name: ForksOf :many
-- ForksOf are the sessions that were forked from one, the newest first.
SELECT f.session_id FROM session_forks f WHERE f.parent_id = @parent_id AND f.session_id < @before::text ORDER BY f.session_id DESC LIMIT @max_items;

-- name: ForkRelation :one
-- ForkRelation says what a session was forked from, empty if it is no fork, and whether another one is a fork of it.
SELECT coalesce((SELECT f.parent_id FROM session_forks f WHERE f.session_id = @session_id), '')::text AS parent_id,
    EXISTS (SELECT FROM session_forks f WHERE f.session_id = @other_id AND f.parent_id = @session_id)::boolean AS forked;

-- name: ForksBelow :many
-- ForksBelow are all forks of a session, and those of its forks, that are not being purged.
WITH RECURSIVE below AS (
    SELECT f.session_id FROM session_forks f WHERE f.parent_id = @parent_id
    UNION
    SELECT f.session_id FROM session_forks f JOIN below b ON f.parent_id = b.session_id
)
SELECT b.session_id FROM below b WHERE NOT EXISTS (SELECT FROM purges p WHERE p.session_id = b.session_id) ORDER BY b.session_id;

-- name: SnapshotsHandOver :exec
-- SnapshotsHandOver gives the snapshots of a session that is being purged to the forks that need them.
UPDATE snapshots n SET session_id = (
    SELECT min(b.session_id) FROM bundles b JOIN sessions o ON o.id = b.session_id
    WHERE b.snapshot_id = n.id AND b.session_id <> @session_id::text AND (o.status <> 'terminated' OR b.pinned_at IS NOT NULL)
      AND NOT EXISTS (SELECT FROM purges p WHERE p.session_id = o.id))
WHERE n.session_id = @session_id::text AND n.deleted_at IS NULL AND n.condemned_at IS NULL AND EXISTS (
    SELECT FROM bundles b JOIN sessions o ON o.id = b.session_id
    WHERE b.snapshot_id = n.id AND b.session_id <> @session_id::text AND (o.status <> 'terminated' OR b.pinned_at IS NOT NULL)
      AND NOT EXISTS (SELECT FROM purges p WHERE p.session_id = o.id));
