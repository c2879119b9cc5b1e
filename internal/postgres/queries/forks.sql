-- name: ForkSessionInsert :execrows
-- ForkSessionInsert inserts a hibernated session. It inserts nothing if the id belonged to a purged
-- session, or if the parent is being purged. If the agent differs from the parent's, the model in
-- the options is dropped.
INSERT INTO sessions (id, status, agent, profile, title, title_given, workspace, parent_id, forked_from, lazy,
    created_at, last_activity_at, idle_timeout_ns, metadata, options)
SELECT @id, 'hibernated', @agent, @profile, @title, @title_given::boolean, s.workspace, '', s.id, true, @at::timestamptz, @at::timestamptz, s.idle_timeout_ns, s.metadata,
    CASE WHEN s.agent = @agent THEN s.options ELSE (s.options::jsonb - 'model')::json END
FROM sessions s
WHERE s.id = @parent_id AND NOT EXISTS (SELECT FROM purges p WHERE p.session_id IN (@id, @parent_id));

-- name: ForkInsert :exec
-- ForkInsert stores where a fork began. The session is handed over to the fork's agent if it
-- differs from the parent's, or if the parent itself was handed over and its agent had completed no
-- turn at the bundle.
INSERT INTO session_forks (session_id, parent_id, bundle_id, prompt_id, memory_id, handed_from, created_at)
SELECT @session_id, @parent_id, @bundle_id, @prompt_id,
    CASE WHEN s.agent = o.agent THEN coalesce(f.memory_id, i.memory_id, o.id) ELSE s.id END,
    CASE
        WHEN coalesce(f.handed_from, '') <> '' AND NOT EXISTS (
            SELECT FROM blocks k WHERE k.session_id = o.id AND k.first_seq <= @last_seq::bigint AND (NOT k.removed OR k.removed_seq > @last_seq)
              AND k.first_seq >= (SELECT min(r.began_seq) FROM runs r WHERE r.session_id = o.id AND r.outcome = 'completed')
        ) THEN f.handed_from
        WHEN s.agent <> o.agent THEN o.agent
        ELSE ''
    END, @at
FROM sessions s JOIN sessions o ON o.id = @parent_id
LEFT JOIN session_forks f ON f.session_id = o.id LEFT JOIN session_imports i ON i.session_id = o.id
WHERE s.id = @session_id;

-- name: ForkCommitLock :exec
-- ForkCommitLock makes purge requests for the parent wait for the commit of a fork, and waits for
-- those that hold the lock (PurgeTryLock). The locks of sessions share a bounded number of keys,
-- because the server's table of locks is bounded.
SELECT pg_advisory_xact_lock_shared(@class, hashtext(@parent_id::text) & 1023);

-- name: PurgeTryLock :one
-- PurgeTryLock returns false if a fork of one of the sessions is being committed. Until the end of
-- the transaction, no other fork of them is committed.
SELECT bool_and(pg_try_advisory_xact_lock(@class, k.key))::boolean AS locked
FROM (SELECT DISTINCT hashtext(x.id) & 1023 AS key FROM unnest(@session_ids::text[]) AS x(id)) k;

-- name: HandOff :one
-- HandOff returns the agent that worked in a session before it was forked with another agent, and
-- whether the new agent has no memory of it yet, because it has completed no turn that was not
-- reverted.
SELECT f.handed_from, (f.prompt_id <> '' AND NOT EXISTS (
    SELECT FROM runs r JOIN prompts p ON p.session_id = r.session_id AND p.id = r.prompt_id
    WHERE r.session_id = f.session_id AND r.outcome = 'completed' AND p.reason <> @reverted::text
))::boolean AS due
FROM session_forks f WHERE f.session_id = @session_id AND f.handed_from <> '';

-- name: HandOffBlocks :many
-- HandOffBlocks returns the newest messages and tool calls of the main conversation before an
-- event, each with the beginning of its text.
SELECT (b.block ->> 'type')::text AS type, coalesce(b.block ->> 'author', '')::text AS author, coalesce(b.block ->> 'name', '')::text AS name,
    left(coalesce(CASE b.block ->> 'type' WHEN 'tool_use' THEN coalesce(nullif(b.block ->> 'title', ''), b.block ->> 'input') ELSE b.block ->> 'content' END, ''), @max_chars::int)::text AS text
FROM blocks b
WHERE b.session_id = @session_id AND b.conversation_id = 'main' AND NOT b.removed AND b.first_seq < @before_seq::bigint
  AND b.block ->> 'type' IN ('user_message', 'assistant_text', 'tool_use')
ORDER BY b.position DESC LIMIT @max_items;

-- name: ForkBundle :exec
-- ForkBundle copies a bundle for a fork, as its head.
INSERT INTO bundles (id, session_id, parent_id, generation, snapshot_id, manifest, verified, checkpoint, created_at, last_seq, prompt_id, outcome, base, archive_id, files_of)
SELECT @id, @session_id, v.id, 0, v.snapshot_id, v.manifest, v.verified, true, @at::timestamptz, @last_seq::bigint, v.prompt_id, v.outcome, true, v.archive_id,
    coalesce(nullif(b.files_of, ''), b.id)
FROM bundle_views v JOIN bundles b ON b.id = v.id WHERE v.id = @bundle_id;

-- name: ForkBlocks :execrows
-- ForkBlocks copies the blocks that a session had at an event, numbered from 1 in their order.
INSERT INTO blocks (session_id, conversation_id, block_id, first_seq, position, text_seq, live, removed, block, size)
SELECT @session_id, b.conversation_id, b.block_id, b.n, b.n, b.n, false, false, b.block, b.size
FROM (
    SELECT k.*, row_number() OVER (ORDER BY k.first_seq) AS n FROM blocks k
    WHERE k.session_id = @parent_id AND k.first_seq <= @through_seq AND (NOT k.removed OR k.removed_seq > @through_seq)
) b;

-- name: ForkConversations :exec
-- ForkConversations assigns numbers to the conversations of the copied blocks.
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
-- BundleAfterPrompt returns the newest bundle whose memory ends with a prompt, if its snapshot is
-- kept.
SELECT id FROM bundle_views WHERE session_id = @session_id AND prompt_id = @prompt_id AND outcome <> 'open' AND has_files ORDER BY no DESC LIMIT 1;

-- name: BundleBeforePrompt :one
-- BundleBeforePrompt returns the newest bundle between the previous turn and a prompt's first turn.
-- It excludes a bundle whose memory a revert has shortened before that turn, since the prompt was
-- sent to a later state.
SELECT v.id FROM bundle_views v
WHERE v.session_id = @session_id AND v.last_seq < @began_seq::bigint AND v.outcome <> 'open' AND v.has_files
  AND NOT EXISTS (SELECT FROM runs r WHERE r.session_id = v.session_id AND r.began_seq > v.last_seq AND r.began_seq < @began_seq::bigint)
  AND NOT EXISTS (SELECT FROM blocks k WHERE k.session_id = v.session_id AND k.first_seq <= v.last_seq AND k.removed_seq > v.last_seq AND k.removed_seq < @began_seq::bigint)
ORDER BY v.no DESC LIMIT 1;

-- name: PromptBegan :one
-- PromptBegan returns where the first turn of a prompt begins; 0 if it has had none.
SELECT coalesce(min(r.began_seq), 0)::bigint FROM runs r WHERE r.session_id = @session_id AND r.prompt_id = @prompt_id;

-- name: BundlesNear :one
-- BundlesNear returns the newest bundle before an event and the oldest one after it, among those
-- whose snapshot is kept.
SELECT
    coalesce((SELECT v.id FROM bundle_views v WHERE v.session_id = @session_id AND v.last_seq < @seq::bigint AND v.has_files AND v.outcome <> 'open' ORDER BY v.no DESC LIMIT 1), '')::text AS before,
    coalesce((SELECT v.id FROM bundle_views v WHERE v.session_id = @session_id AND v.last_seq >= @seq::bigint AND v.has_files AND v.outcome <> 'open' ORDER BY v.no LIMIT 1), '')::text AS after;

-- name: ForksOf :many
-- ForksOf returns the forks of a session, newest first.
SELECT f.session_id FROM session_forks f WHERE f.parent_id = @parent_id AND f.session_id < @before::text ORDER BY f.session_id DESC LIMIT @max_items;

-- name: ForkRelation :one
-- ForkRelation returns the parent of a session, empty if it is not a fork, and whether another
-- session is a fork of it.
SELECT coalesce((SELECT f.parent_id FROM session_forks f WHERE f.session_id = @session_id), '')::text AS parent_id,
    EXISTS (SELECT FROM session_forks f WHERE f.session_id = @other_id AND f.parent_id = @session_id)::boolean AS forked;

-- name: ForksBelow :many
-- ForksBelow returns all direct and indirect forks of a session that are not being purged. Forks of
-- purged forks are among them.
WITH RECURSIVE below AS (
    SELECT @parent_id::text AS session_id
    UNION
    SELECT x.session_id FROM below b CROSS JOIN LATERAL (
        SELECT f.session_id FROM session_forks f WHERE f.parent_id = b.session_id
        UNION ALL
        SELECT p.session_id FROM purges p WHERE p.parent_id = b.session_id AND p.parent_id <> ''
    ) x
)
SELECT b.session_id FROM below b
WHERE b.session_id <> @parent_id::text AND NOT EXISTS (SELECT FROM purges p WHERE p.session_id = b.session_id) ORDER BY b.session_id;

-- name: SnapshotsHandOver :exec
-- SnapshotsHandOver moves the snapshots of a session that is being purged to the forks that need
-- them.
UPDATE snapshots n SET session_id = (
    SELECT min(b.session_id) FROM bundles b JOIN sessions o ON o.id = b.session_id
    WHERE b.snapshot_id = n.id AND b.snapshot_id <> '' AND b.session_id <> @session_id::text AND (o.status <> 'terminated' OR b.pinned_at IS NOT NULL)
      AND NOT EXISTS (SELECT FROM purges p WHERE p.session_id = o.id))
WHERE n.session_id = @session_id::text AND n.deleted_at IS NULL AND n.condemned_at IS NULL AND EXISTS (
    SELECT FROM bundles b JOIN sessions o ON o.id = b.session_id
    WHERE b.snapshot_id = n.id AND b.snapshot_id <> '' AND b.session_id <> @session_id::text AND (o.status <> 'terminated' OR b.pinned_at IS NOT NULL)
      AND NOT EXISTS (SELECT FROM purges p WHERE p.session_id = o.id));
