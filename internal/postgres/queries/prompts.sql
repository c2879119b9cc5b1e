-- name: PromptInsert :exec
INSERT INTO prompts (session_id, id, ordinal, rank, status, content, mode, on_unknown, author, depth, created_at, request_id, trace_parent, attachments,
    joined_to, collect_until, allotted_run_id, base_session_id, base_bundle_id)
VALUES (@session_id, @id, @ordinal, @rank, 'queued', @content, @mode, @on_unknown, @author, @depth, @created_at, @request_id, @trace_parent, @attachments,
    @joined_to, sqlc.narg(collect_until), @allotted_run_id, @base_session_id, @base_bundle_id);

-- name: PromptGet :one
SELECT * FROM prompts WHERE session_id = @session_id AND id = @id;

-- name: PromptList :many
-- PromptList ends with the prompt with which the contents reach max_bytes.
SELECT prompts.* FROM prompts
JOIN (
    SELECT i.session_id, i.id, sum(octet_length(i.content)) OVER (ORDER BY i.ordinal ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM prompts i WHERE i.session_id = @session_id AND i.ordinal > @after_ordinal ORDER BY i.ordinal LIMIT @max_items
) p ON p.session_id = prompts.session_id AND p.id = prompts.id
WHERE p.before IS NULL OR p.before < @max_bytes::bigint
ORDER BY prompts.ordinal;

-- name: PromptPosition :one
-- PromptPosition returns the number of queued prompts up to and including this one; 0 once it is no
-- longer queued.
SELECT count(*) FROM prompts p JOIN prompts own ON own.session_id = p.session_id
WHERE own.session_id = @session_id AND own.id = @id AND own.status = 'queued'
  AND p.status = 'queued' AND (p.rank, p.ordinal) <= (own.rank, own.ordinal);

-- name: PromptsOfAgent :one
-- PromptsOfAgent counts the prompts by one agent since the newest one by a person or a program.
SELECT count(*) FROM prompts a
WHERE a.session_id = @session_id AND a.author = @author AND a.ordinal > coalesce(
    (SELECT p.ordinal FROM prompts p WHERE p.session_id = @session_id AND NOT starts_with(p.author, @prefix::text) ORDER BY p.ordinal DESC LIMIT 1), 0);

-- name: PromptCountQueued :one
SELECT count(*) FROM prompts WHERE session_id = @session_id AND status = 'queued';

-- name: PromptUnfinished :many
-- PromptUnfinished returns the unfinished prompts, except those that are still being collected or
-- are joined to another unfinished one.
SELECT p.id, p.ordinal, p.rank, p.status, p.run_id, p.on_unknown FROM prompts p
WHERE p.session_id = @session_id AND p.status IN ('queued', 'processing') AND (p.collect_until IS NULL OR p.collect_until <= statement_timestamp())
  AND (p.joined_to = '' OR NOT EXISTS (SELECT FROM prompts h WHERE h.session_id = p.session_id AND h.id = p.joined_to AND h.status IN ('queued', 'processing')))
ORDER BY p.rank, p.ordinal;

-- name: PromptClaim :exec
-- PromptClaim is the only statement that gives a prompt to a run.
UPDATE prompts SET status = 'processing', run_id = @run_id, reason = '', started_at = @at::timestamptz, joined_to = '', collect_until = NULL,
    claims = claims + 1, allotted_run_id = CASE allotted_run_id WHEN '' THEN @run_id ELSE allotted_run_id END,
    steers_run = ''
WHERE session_id = @session_id AND id = @id AND status = 'queued';

-- name: PromptsJoined :many
-- PromptsJoined returns the prompts that are joined to an unfinished one, in order, except those
-- that were given to its running turn.
SELECT * FROM prompts WHERE session_id = @session_id AND joined_to = @id AND status IN ('queued', 'processing') AND steers_run = '' ORDER BY ordinal;

-- name: PromptsJoinedClaim :many
-- PromptsJoinedClaim gives the prompts that are joined to a prompt to its run.
UPDATE prompts SET status = 'processing', run_id = @run_id, reason = '', started_at = @at::timestamptz, collect_until = NULL
WHERE session_id = @session_id AND joined_to = @id AND status = 'queued'
RETURNING *;

-- name: PromptsJoinedEnd :many
-- PromptsJoinedEnd ends the prompts that are joined to a prompt, with its status.
UPDATE prompts SET status = @status, reason = @reason, ended_at = @at::timestamptz
WHERE session_id = @session_id AND joined_to = @id AND status IN ('queued', 'processing') AND steers_run = ''
RETURNING *;

-- name: PromptsJoinedQueue :many
-- PromptsJoinedQueue requeues the prompts that are joined to a prompt together with it.
UPDATE prompts SET status = 'queued', run_id = '', reason = @reason, started_at = NULL, ended_at = NULL
WHERE session_id = @session_id AND joined_to = @id AND status IN ('processing', 'unknown') AND steers_run = ''
RETURNING *;

-- name: PromptsJoinedResolve :many
-- PromptsJoinedResolve gives the prompts that are joined to a prompt whose outcome is unknown the
-- outcome of that prompt.
UPDATE prompts SET status = @status
WHERE session_id = @session_id AND joined_to = @id AND status = 'unknown'
RETURNING *;

-- name: PromptsGather :many
-- PromptsGather returns the prompts that are still being collected, in order.
SELECT id, rank, on_unknown, joined_to, created_at, octet_length(content)::bigint AS bytes, attachments FROM prompts
WHERE session_id = @session_id AND status = 'queued' AND collect_until > @at::timestamptz ORDER BY ordinal;

-- name: PromptsGatherUntil :exec
-- PromptsGatherUntil changes the time until which a prompt and those that are joined to it are
-- collected.
UPDATE prompts SET collect_until = @until::timestamptz WHERE session_id = @session_id AND status = 'queued' AND (id = @id OR joined_to = @id);

-- name: PromptsGathered :many
-- PromptsGathered ends the collection: the prompts are next when earlier ones have ended.
UPDATE prompts SET collect_until = NULL WHERE session_id = @session_id AND status = 'queued' AND collect_until IS NOT NULL
RETURNING *;

-- name: PromptsGatherClose :exec
-- PromptsGatherClose is PromptsGathered when a prompt follows the collected ones.
UPDATE prompts SET collect_until = NULL WHERE session_id = @session_id AND status = 'queued' AND collect_until IS NOT NULL;

-- name: PromptsGatherEnd :one
-- PromptsGatherEnd returns until when prompts are being collected.
SELECT collect_until FROM prompts WHERE session_id = @session_id AND status = 'queued' AND collect_until IS NOT NULL
ORDER BY collect_until DESC LIMIT 1;

-- name: PromptsRejoin :many
-- PromptsRejoin joins the prompts that were joined to a prompt that has left the queue to the first
-- of them.
UPDATE prompts p SET joined_to = CASE WHEN p.id = n.id THEN '' ELSE n.id END
FROM (
    SELECT f.id FROM prompts f WHERE f.session_id = @session_id AND f.joined_to = @id AND f.status = 'queued' ORDER BY f.ordinal LIMIT 1
) n
WHERE p.session_id = @session_id AND p.joined_to = @id AND p.status = 'queued'
RETURNING p.*;

-- name: PromptEnd :one
UPDATE prompts SET status = @status, reason = @reason, ended_at = @at::timestamptz, collect_until = NULL
WHERE session_id = @session_id AND id = @id AND status IN ('queued', 'processing')
RETURNING *;

-- name: PromptClose :exec
-- PromptClose is PromptEnd for a prompt that has been read.
UPDATE prompts SET status = @status, reason = @reason, ended_at = @at::timestamptz, collect_until = NULL
WHERE session_id = @session_id AND id = @id AND status IN ('queued', 'processing');

-- name: PromptQueue :one
-- PromptQueue returns a prompt to its place in the queue: its ordinal stays.
UPDATE prompts SET status = 'queued', run_id = '', reason = @reason, started_at = NULL, ended_at = NULL
WHERE session_id = @session_id AND id = @id
RETURNING *;

-- name: PromptRetry :one
-- PromptRetry returns a prompt whose outcome is unknown to its place in the queue.
UPDATE prompts SET status = 'queued', run_id = '', reason = '', started_at = NULL, ended_at = NULL,
    resolution = 'retry', resolution_note = '', resolved_at = @at::timestamptz
WHERE session_id = @session_id AND id = @id AND status = 'unknown'
RETURNING *;

-- name: PromptResolve :one
UPDATE prompts SET status = @status, reason = @reason, resolution = @resolution, resolution_note = @note, resolved_at = @at::timestamptz
WHERE session_id = @session_id AND id = @id AND status = 'unknown'
RETURNING *;

-- name: PromptsEnd :many
-- PromptsEnd cancels the first unfinished prompts. It does not read their content, which may be
-- large.
UPDATE prompts p SET status = 'cancelled', reason = @reason, ended_at = @at::timestamptz, collect_until = NULL
WHERE p.session_id = @session_id AND p.id IN (
    SELECT o.id FROM prompts o WHERE o.session_id = @session_id AND o.status IN ('queued', 'processing')
    ORDER BY o.rank, o.ordinal LIMIT @max_items
)
RETURNING p.session_id, p.id, p.ordinal, p.status, p.mode, p.on_unknown, p.author, p.depth, p.run_id, p.reason, p.created_at, p.started_at, p.ended_at, p.request_id,
    p.resolution, p.resolution_note, p.resolved_at, p.joined_to, p.allotted_run_id;

-- name: PromptHead :many
-- PromptHead returns the head of the queue, with the counts of the whole queue in each row. The
-- processing prompt comes first.
SELECT id, ordinal, rank, status, mode, steers_run, count(*) FILTER (WHERE status = 'queued') OVER ()::bigint AS queued,
    count(*) FILTER (WHERE status = 'processing') OVER ()::bigint AS processing,
    count(*) FILTER (WHERE status = 'queued' AND collect_until > statement_timestamp()) OVER ()::bigint AS collecting
FROM prompts WHERE session_id = @session_id AND status IN ('queued', 'processing') ORDER BY (status = 'queued'), rank, ordinal LIMIT @max_items;

-- name: Unclaimed :many
-- Unclaimed finds sessions after an id whose workflow should be signalled. The workflow ignores a
-- redundant signal, but each adds to its history, so sessions with known progress are omitted:
--
--   * Not loaded: no workflow is open. Reasons to signal are a queued prompt; a processing prompt,
--     whose run only a workflow can end; and a status that only a workflow leaves (running,
--     hibernating, restoring, initializing unless lazy). All others need nothing.
--   * Loaded: the workflow is open and was signalled when the prompt was submitted. The signal may
--     have been lost, for example because the api died between row and signal. The reason to signal
--     is a prompt that is still queued after a while although it should have started: always in
--     initializing and hibernated, which only a prompt ends; in running if no turn is in progress,
--     since prompts wait for the end of a turn. In hibernating and restoring the queue waits for
--     the next status, in error for a person, and in hibernated with a parked run for the answer to
--     a question.
--
-- Prompts of a held queue, or that are still being collected, are no reason.
--
-- It starts from unfinished prompts and from sessions_unloaded, so that its cost does not depend on
-- the number of sleeping sessions. It returns one row per session, with its oldest queued prompt:
-- the workflow reads the others when it opens, and takes them in their order.
SELECT s.id AS session_id, coalesce(q.id, '')::text AS prompt_id, coalesce(q.ordinal, 0)::bigint AS ordinal
FROM (
    SELECT u.session_id AS id FROM prompts u WHERE u.status IN ('queued', 'processing') AND u.session_id > @after::text
    UNION
    SELECT o.id FROM sessions o
    WHERE NOT o.loaded AND (o.status IN ('running', 'hibernating', 'restoring') OR o.status = 'initializing' AND NOT o.lazy)
      AND o.id > @after::text
) c
JOIN sessions s ON s.id = c.id
LEFT JOIN LATERAL (
    SELECT p.id, p.ordinal, p.created_at FROM prompts p
    WHERE p.session_id = s.id AND p.status = 'queued' AND s.held_at IS NULL
        AND (p.collect_until IS NULL OR p.collect_until <= statement_timestamp())
    ORDER BY p.rank, p.ordinal LIMIT 1
) q ON true
LEFT JOIN LATERAL (
    SELECT p.started_at FROM prompts p
    WHERE p.session_id = s.id AND p.status = 'processing' ORDER BY p.rank, p.ordinal LIMIT 1
) r ON true
WHERE s.status <> 'terminated'
AND (
    NOT s.loaded AND (
        q.created_at < statement_timestamp() - make_interval(secs => @age_seconds::double precision)
        OR r.started_at < statement_timestamp() - make_interval(secs => @age_seconds::double precision)
        OR q.id IS NULL AND r.started_at IS NULL
            AND (s.held_at IS NULL OR s.status IN ('running', 'hibernating', 'restoring') OR s.status = 'initializing' AND NOT s.lazy)
            AND s.last_activity_at < statement_timestamp() - make_interval(secs => @age_seconds::double precision)
    )
    OR s.loaded AND q.created_at < statement_timestamp() - make_interval(secs => @age_seconds::double precision) AND (
        s.status IN ('initializing', 'hibernated')
            AND NOT EXISTS (SELECT FROM runs k WHERE k.session_id = s.id AND k.ended_at IS NULL AND k.parked_at IS NOT NULL)
        OR s.status = 'running' AND r.started_at IS NULL
    )
)
ORDER BY s.id
LIMIT @max_items;

-- name: PromptsUnclaimed :many
-- PromptsUnclaimed returns the prompts among those given that are queued and no longer collected,
-- in sessions without a processing prompt and without a hold.
SELECT p.session_id, p.id FROM (SELECT unnest(@session_ids::text[]) AS session_id, unnest(@ids::text[]) AS id) asked
JOIN prompts p ON p.session_id = asked.session_id AND p.id = asked.id
JOIN sessions s ON s.id = p.session_id
WHERE p.status = 'queued' AND s.held_at IS NULL AND (p.collect_until IS NULL OR p.collect_until <= statement_timestamp())
  AND NOT EXISTS (SELECT FROM prompts r WHERE r.session_id = p.session_id AND r.status = 'processing');

-- name: Attended :many
-- Attended lists loaded sessions after an id that have work: an unfinished prompt, or a state that
-- only a workflow leaves. Their workflow must be open. The run is an open one that has been silent
-- since a time: its workflow must be notified of it.
SELECT s.id AS session_id, coalesce(r.id, '')::text AS run_id, s.status, s.workflow_run
FROM (
    SELECT u.session_id AS id FROM prompts u WHERE u.status IN ('queued', 'processing') AND u.session_id > @after::text
    UNION
    SELECT o.id FROM sessions o
    WHERE o.loaded AND (o.status IN ('running', 'hibernating', 'restoring', 'error') OR o.status = 'initializing' AND NOT o.lazy)
      AND o.id > @after::text
) c
JOIN sessions s ON s.id = c.id
LEFT JOIN runs r ON r.session_id = s.id AND r.ended_at IS NULL AND r.parked_at IS NULL AND s.last_activity_at < statement_timestamp() - make_interval(secs => @quiet_seconds::double precision)
    AND NOT EXISTS (
        SELECT FROM event_log e
        WHERE e.session_no = s.no AND e.seq = s.last_seq AND e.at >= statement_timestamp() - make_interval(secs => @quiet_seconds::double precision)
    )
WHERE s.loaded AND s.status <> 'terminated'
ORDER BY s.id
LIMIT @max_items;

-- name: PromptsBlocked :many
-- PromptsBlocked returns the first queued prompts of a session, without their content.
SELECT id, ordinal, rank, mode, on_unknown, author, depth, reason, created_at, request_id, joined_to, allotted_run_id FROM prompts
WHERE session_id = @session_id AND status = 'queued' ORDER BY rank, ordinal LIMIT @max_items;

-- name: PromptFirst :one
-- PromptFirst returns the next prompt. It skips prompts that are still being collected, regardless
-- of their place; prompts that are joined to another follow it.
SELECT id, ordinal, rank FROM prompts
WHERE session_id = @session_id AND status = 'queued' AND (collect_until IS NULL OR collect_until <= statement_timestamp())
ORDER BY rank, ordinal LIMIT 1;

-- name: PromptNext :one
-- PromptNext is PromptFirst with all columns.
SELECT * FROM prompts
WHERE session_id = @session_id AND status = 'queued' AND (collect_until IS NULL OR collect_until <= statement_timestamp())
ORDER BY rank, ordinal LIMIT 1;

-- name: PromptsFirst :many
-- PromptsFirst returns the next prompts, with the number of queued prompts as counted by
-- PromptUnfinished.
SELECT p.id, p.ordinal, p.rank, (count(*) OVER ())::bigint AS queued FROM prompts p
WHERE p.session_id = @session_id AND p.status = 'queued' AND (p.collect_until IS NULL OR p.collect_until <= statement_timestamp())
  AND (p.joined_to = '' OR NOT EXISTS (SELECT FROM prompts h WHERE h.session_id = p.session_id AND h.id = p.joined_to AND h.status IN ('queued', 'processing')))
ORDER BY p.rank, p.ordinal LIMIT @max_items;

-- name: PromptSteers :exec
-- PromptSteers marks a queued prompt for the running turn, whose attempt will take it.
WITH counted AS (UPDATE runs SET steers = steers + 1 WHERE runs.id = @run_id)
UPDATE prompts SET steers_run = @run_id WHERE prompts.session_id = @session_id AND prompts.id = @id;

-- name: SteerNext :one
-- SteerNext returns the next prompt that waits for the running turn.
SELECT * FROM prompts WHERE session_id = @session_id AND status = 'queued' AND steers_run = @run_id ORDER BY rank, ordinal LIMIT 1;

-- name: SteersWait :one
-- SteersWait reports whether a prompt waits for the running turn. It takes no locks.
SELECT EXISTS (SELECT FROM runs r JOIN prompts p ON p.session_id = r.session_id WHERE r.id = @run_id AND p.status = 'queued' AND p.steers_run = r.id);

-- name: SteersTaken :many
-- SteersTaken returns the prompts that were given to the running turn, in order, except those that
-- the agent took in an earlier part of the run.
SELECT * FROM prompts WHERE session_id = @session_id AND status = 'processing' AND steers_run = @run_id
  AND (steered_part IS NULL OR steered_part = @part) ORDER BY started_at, ordinal;

-- name: SteerTake :one
UPDATE prompts SET status = 'processing', run_id = @run_id, reason = '', started_at = @at::timestamptz, joined_to = @joined_to
WHERE session_id = @session_id AND id = @id AND status = 'queued'
RETURNING *;

-- name: SteersSettle :exec
-- SteersSettle changes rows only for the attempt that has the run.
UPDATE prompts p SET steered_part = @part::bigint FROM runs r
WHERE r.id = @run_id AND r.token = @token::text AND r.token <> '' AND p.session_id = r.session_id AND p.id = ANY(@ids::text[])
  AND p.status = 'processing' AND p.steers_run = r.id AND p.steered_part IS NULL;

-- name: SteersOf :many
-- SteersOf returns the prompts that were given to a run, without their content.
SELECT id, (steered_part IS NOT NULL)::boolean AS taken FROM prompts
WHERE session_id = @session_id AND status = 'processing' AND steers_run = @run_id ORDER BY ordinal;

-- name: SteersEnd :many
-- SteersEnd ends prompts with the run to which they were given.
UPDATE prompts SET status = @status, reason = @reason, ended_at = @at::timestamptz
WHERE session_id = @session_id AND id = ANY(@ids::text[]) AND status = 'processing'
RETURNING *;

-- name: SteersReturn :many
-- SteersReturn returns prompts that were given to a run to their places in the queue.
UPDATE prompts SET status = 'queued', run_id = '', reason = '', started_at = NULL, ended_at = NULL, joined_to = '', steers_run = '', steered_part = NULL
WHERE session_id = @session_id AND id = ANY(@ids::text[]) AND status = 'processing'
RETURNING *;

-- name: SteersRequeue :many
-- SteersRequeue returns the prompts that were given to the turn of a prompt to their places in the
-- queue, together with that prompt.
UPDATE prompts SET status = 'queued', run_id = '', reason = '', started_at = NULL, ended_at = NULL, joined_to = '', steers_run = '', steered_part = NULL
WHERE session_id = @session_id AND joined_to = @id AND steers_run <> '' AND status IN ('processing', 'unknown')
RETURNING *;

-- name: PromptReplace :one
-- PromptReplace replaces the content of a queued prompt. The digest is that of its first content.
UPDATE prompts SET content = @content, submitted_digest = coalesce(submitted_digest, @digest)
WHERE session_id = @session_id AND id = @id AND status = 'queued'
RETURNING *;

-- name: PromptPromote :many
-- PromptPromote moves a queued prompt, with those that are joined to it, to the front of the queue.
UPDATE prompts p SET rank = least(0, (SELECT min(o.rank) FROM prompts o WHERE o.session_id = @session_id AND o.status = 'queued')) - 1
WHERE p.session_id = @session_id AND (p.id = @id OR p.joined_to = @id) AND p.status = 'queued'
RETURNING *;

-- name: PromptsClear :many
-- PromptsClear cancels every queued prompt, without reading the content.
UPDATE prompts p SET status = 'cancelled', reason = @reason, ended_at = @at::timestamptz, collect_until = NULL
WHERE p.session_id = @session_id AND p.status = 'queued'
RETURNING p.session_id, p.id, p.ordinal, p.status, p.mode, p.on_unknown, p.author, p.depth, p.run_id, p.reason, p.created_at, p.started_at, p.ended_at, p.request_id,
    p.resolution, p.resolution_note, p.resolved_at, p.joined_to, p.allotted_run_id;

-- name: PromptTurn :one
-- PromptTurn returns where the turn of a prompt begins in the log. Both positions are from one
-- snapshot: began_seq is 0 as long as no run has had the prompt.
SELECT s.last_seq, coalesce((
    SELECT min(r.began_seq) FROM runs r WHERE r.session_id = p.session_id AND r.prompt_id = coalesce(nullif(p.joined_to, ''), p.id)
), 0)::bigint AS began_seq
FROM prompts p JOIN sessions s ON s.id = p.session_id
WHERE p.session_id = @session_id AND p.id = @id;

-- name: PromptsPending :many
-- PromptsPending returns the unfinished prompts: the processing one, and then the queued ones in
-- order.
SELECT id FROM prompts WHERE session_id = @session_id AND status IN ('queued', 'processing')
ORDER BY status = 'processing' DESC, rank, ordinal LIMIT @max_items;
