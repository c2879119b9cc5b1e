-- name: RunsFrom :many
-- RunsFrom returns the runs of a prompt and of all later prompts, oldest first. They have the order
-- of the log; runs of releases that did not record their position come first, ordered by time.
SELECT r.id FROM runs r
WHERE r.session_id = @session_id
  AND (r.began_seq, r.started_at) >= (
    SELECT f.began_seq, f.started_at FROM runs f
    WHERE f.session_id = @session_id AND f.prompt_id = @prompt_id
    ORDER BY f.began_seq, f.started_at LIMIT 1
  )
ORDER BY r.began_seq, r.started_at, r.id;

-- name: RunsFirstSeq :one
-- RunsFirstSeq returns the oldest remaining event of runs; 0 if there is none.
SELECT coalesce(min(e.seq), 0)::bigint FROM event_log e
WHERE e.session_no = (SELECT s.no FROM sessions s WHERE s.id = @session_id)
    AND e.run_no IN (SELECT r.no FROM runs r WHERE r.session_id = @session_id AND r.id = ANY(@run_ids::text[]));

-- name: BlocksRemove :many
UPDATE blocks SET removed = true, live = false, removed_seq = @at_seq
WHERE session_id = @session_id AND first_seq >= @first_seq AND NOT removed
RETURNING conversation_id, block_id, first_seq;

-- name: PromptsRevert :many
-- PromptsRevert marks the prompts of runs as reverted; their outcome stays.
UPDATE prompts p SET reason = @reason
WHERE p.session_id = @session_id AND (p.id IN (SELECT r.prompt_id FROM runs r WHERE r.id = ANY(@run_ids::text[])) OR p.joined_to <> '' AND p.run_id = ANY(@run_ids::text[]))
  AND p.status NOT IN ('queued', 'processing') AND p.reason <> @reason
RETURNING p.session_id, p.id, p.ordinal, p.status, p.mode, p.on_unknown, p.author, p.depth, p.run_id, p.reason, p.created_at, p.started_at, p.ended_at, p.request_id,
    p.resolution, p.resolution_note, p.resolved_at, p.joined_to, p.allotted_run_id;

-- name: RunsAfter :many
-- RunsAfter returns the runs of a session that began after an event and whose prompts were not
-- reverted, oldest first.
SELECT r.id, r.prompt_id FROM runs r JOIN prompts p ON p.session_id = r.session_id AND p.id = r.prompt_id
WHERE r.session_id = @session_id AND r.began_seq > @seq::bigint AND p.reason <> @reverted::text
ORDER BY r.began_seq, r.started_at, r.id;

-- name: BundleIsUndone :one
-- BundleIsUndone reports whether a revert has removed a part of the conversation of a bundle.
SELECT EXISTS (SELECT FROM blocks k WHERE k.session_id = @session_id AND k.first_seq <= @last_seq::bigint AND k.removed_seq > @last_seq::bigint);

-- name: RevertBundle :exec
-- RevertBundle copies a bundle of a session for the sandbox of a generation that was restored from
-- it.
INSERT INTO bundles (id, session_id, parent_id, generation, snapshot_id, manifest, verified, checkpoint, created_at, last_seq, prompt_id, outcome, files_epoch, files_of)
SELECT @id, v.session_id, v.id, @generation, v.snapshot_id, v.manifest, v.verified, true, @at::timestamptz, @last_seq::bigint, v.prompt_id, v.outcome,
    b.files_epoch, b.files_of
FROM bundle_views v JOIN bundles b ON b.id = v.id WHERE v.id = @bundle_id;

-- name: TranscriptsForget :exec
-- TranscriptsForget deletes the stored transcripts of a session: the next turn stores those of its
-- sandbox.
WITH segments AS (DELETE FROM transcripts t WHERE t.session_id = @session_id), positions AS (DELETE FROM transcript_positions p WHERE p.session_id = @session_id)
DELETE FROM transcript_totals o WHERE o.session_id = @session_id;
