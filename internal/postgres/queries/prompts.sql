-- name: PromptInsert :exec
INSERT INTO prompts (session_id, id, ordinal, rank, status, content, mode, on_unknown, author, depth, created_at, request_id, trace_parent, attachments,
    joined_to, collect_until, allotted_run_id, base_session_id, base_bundle_id)
VALUES (@session_id, @id, @ordinal, @rank, 'queued', @content, @mode, @on_unknown, @author, @depth, @created_at, @request_id, @trace_parent, @attachments,
    @joined_to, sqlc.narg(collect_until), @allotted_run_id, @base_session_id, @base_bundle_id);

-- name: PromptGet :one
SELECT * FROM prompts WHERE session_id = @session_id AND id = @id;

-- name: PromptList :many
-- PromptList ends with the prompt that brings the contents to max_bytes or more.
SELECT prompts.* FROM prompts
JOIN (
    SELECT i.session_id, i.id, sum(octet_length(i.content)) OVER (ORDER BY i.ordinal ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM prompts i WHERE i.session_id = @session_id AND i.ordinal > @after_ordinal ORDER BY i.ordinal LIMIT @max_items
) p ON p.session_id = prompts.session_id AND p.id = prompts.id
WHERE p.before IS NULL OR p.before < @max_bytes::bigint
ORDER BY prompts.ordinal;

-- name: PromptPosition :one
-- PromptPosition counts the queued prompts up to and with this one; 0 once it is not queued.
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
-- PromptUnfinished are the prompts that are not over, without those that are still collected, or joined to another that is not over.
SELECT p.id, p.ordinal, p.rank, p.status, p.run_id, p.on_unknown FROM prompts p
WHERE p.session_id = @session_id AND p.status IN ('queued', 'processing') AND (p.collect_until IS NULL OR p.collect_until <= statement_timestamp())
  AND (p.joined_to = '' OR NOT EXISTS (SELECT FROM prompts h WHERE h.session_id = p.session_id AND h.id = p.joined_to AND h.status IN ('queued', 'processing')))
ORDER BY p.rank, p.ordinal;

-- name: AttendantDue :one
-- AttendantDue reports whether RunClaim may come to something else than a continued wait. It takes no lock.
SELECT (NOT EXISTS (SELECT FROM sessions s WHERE s.id = @session_id AND s.attendant = @attendant AND s.status = 'running')
    OR EXISTS (SELECT FROM prompts p JOIN sessions s ON s.id = p.session_id WHERE p.session_id = @session_id AND p.status = 'queued' AND s.held_at IS NULL
        AND (p.collect_until IS NULL OR p.collect_until <= statement_timestamp()))
    OR EXISTS (SELECT FROM session_commands c WHERE c.session_id = @session_id AND c.status = 'pending'))::boolean;

-- name: PromptClaim :exec
-- PromptClaim is the one statement that gives a prompt to a run.
UPDATE prompts SET status = 'processing', run_id = @run_id, reason = '', started_at = @at::timestamptz, joined_to = '', collect_until = NULL,
    claims = claims + 1, allotted_run_id = CASE allotted_run_id WHEN '' THEN @run_id ELSE allotted_run_id END,
    steers_run = ''
WHERE session_id = @session_id AND id = @id AND status = 'queued';

-- name: PromptsJoined :many
-- PromptsJoined are the prompts that are joined to one that is not over, in order, without those that its turn is given while it runs.
SELECT * FROM prompts WHERE session_id = @session_id AND joined_to = @id AND status IN ('queued', 'processing') AND steers_run = '' ORDER BY ordinal;

-- name: PromptsJoinedClaim :many
-- PromptsJoinedClaim gives those that are joined to a prompt to its run.
UPDATE prompts SET status = 'processing', run_id = @run_id, reason = '', started_at = @at::timestamptz, collect_until = NULL
WHERE session_id = @session_id AND joined_to = @id AND status = 'queued'
RETURNING *;

-- name: PromptsJoinedEnd :many
-- PromptsJoinedEnd ends those that are joined to a prompt, with its status.
UPDATE prompts SET status = @status, reason = @reason, ended_at = @at::timestamptz
WHERE session_id = @session_id AND joined_to = @id AND status IN ('queued', 'processing') AND steers_run = ''
RETURNING *;

-- name: PromptsJoinedQueue :many
-- PromptsJoinedQueue puts those that are joined to a prompt back with it.
UPDATE prompts SET status = 'queued', run_id = '', reason = @reason, started_at = NULL, ended_at = NULL
WHERE session_id = @session_id AND joined_to = @id AND status IN ('processing', 'unknown') AND steers_run = ''
RETURNING *;

-- name: PromptsJoinedResolve :many
-- PromptsJoinedResolve gives those that are joined to a prompt whose outcome is unknown the outcome that it gets.
UPDATE prompts SET status = @status
WHERE session_id = @session_id AND joined_to = @id AND status = 'unknown'
RETURNING *;

-- name: PromptsGather :many
-- PromptsGather are the prompts that are still collected, in order.
SELECT id, rank, on_unknown, joined_to, created_at, octet_length(content)::bigint AS bytes, attachments FROM prompts
WHERE session_id = @session_id AND status = 'queued' AND collect_until > @at::timestamptz ORDER BY ordinal;

-- name: PromptsGatherUntil :exec
-- PromptsGatherUntil moves the time until which a prompt and those that are joined to it are collected.
UPDATE prompts SET collect_until = @until::timestamptz WHERE session_id = @session_id AND status = 'queued' AND (id = @id OR joined_to = @id);

-- name: PromptsGathered :many
-- PromptsGathered ends the collection: the prompts are next when the ones before them are over.
UPDATE prompts SET collect_until = NULL WHERE session_id = @session_id AND status = 'queued' AND collect_until IS NOT NULL
RETURNING *;

-- name: PromptsGatherClose :exec
-- PromptsGatherClose is PromptsGathered for a prompt that comes after them.
UPDATE prompts SET collect_until = NULL WHERE session_id = @session_id AND status = 'queued' AND collect_until IS NOT NULL;

-- name: PromptsGatherEnd :one
-- PromptsGatherEnd is how long prompts are still collected.
SELECT collect_until FROM prompts WHERE session_id = @session_id AND status = 'queued' AND collect_until IS NOT NULL
ORDER BY collect_until DESC LIMIT 1;

-- name: PromptsRejoin :many
-- PromptsRejoin joins those that were joined to a prompt that has left the queue to the first of them.
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

-- name: PromptQueue :one
-- PromptQueue puts a prompt back at its place: its ordinal stays.
UPDATE prompts SET status = 'queued', run_id = '', reason = @reason, started_at = NULL, ended_at = NULL
WHERE session_id = @session_id AND id = @id
RETURNING *;

-- name: PromptRetry :one
-- PromptRetry puts a prompt whose outcome is unknown back at its place.
UPDATE prompts SET status = 'queued', run_id = '', reason = '', started_at = NULL, ended_at = NULL,
    resolution = 'retry', resolution_note = '', resolved_at = @at::timestamptz
WHERE session_id = @session_id AND id = @id AND status = 'unknown'
RETURNING *;

-- name: PromptResolve :one
UPDATE prompts SET status = @status, reason = @reason, resolution = @resolution, resolution_note = @note, resolved_at = @at::timestamptz
WHERE session_id = @session_id AND id = @id AND status = 'unknown'
RETURNING *;

-- name: PromptsEnd :many
-- PromptsEnd cancels the first prompts that are not over. It does not read their
-- content, which is what makes prompts large.
UPDATE prompts p SET status = 'cancelled', reason = @reason, ended_at = @at::timestamptz, collect_until = NULL
WHERE p.session_id = @session_id AND p.id IN (
    SELECT o.id FROM prompts o WHERE o.session_id = @session_id AND o.status IN ('queued', 'processing')
    ORDER BY o.rank, o.ordinal LIMIT @max_items
)
RETURNING p.session_id, p.id, p.ordinal, p.status, p.mode, p.on_unknown, p.author, p.depth, p.run_id, p.reason, p.created_at, p.started_at, p.ended_at, p.request_id,
    p.resolution, p.resolution_note, p.resolved_at, p.joined_to, p.allotted_run_id;

-- name: PromptHead :many
-- PromptHead is the head of the queue, each row with the counts of the whole queue. What is processed comes first.
SELECT id, ordinal, rank, status, mode, steers_run, count(*) FILTER (WHERE status = 'queued') OVER ()::bigint AS queued,
    count(*) FILTER (WHERE status = 'processing') OVER ()::bigint AS processing,
    count(*) FILTER (WHERE status = 'queued' AND collect_until > statement_timestamp()) OVER ()::bigint AS collecting
FROM prompts WHERE session_id = @session_id AND status IN ('queued', 'processing') ORDER BY (status = 'queued'), rank, ordinal LIMIT @max_items;

-- name: Unclaimed :many
-- Unclaimed finds sessions after an id whose workflow should be signalled. A signal too many is ignored by the
-- workflow, but each costs it history, so sessions that are known to be at work are left out:
--
--   * Not loaded: no workflow is open, or none has been yet. Reasons are a prompt that waits; a prompt that a
--     run has, which only a workflow can settle; and a state that only a workflow leads out of (running,
--     hibernating, restoring, initializing unless lazy). All others need nothing.
--   * Loaded: the workflow is open and was signalled when the prompt came. The signal may have been lost, as when
--     the api died between row and signal. A prompt that is still queued after a while where it should have been
--     taken is a reason: in initializing and hibernated always, since there a prompt alone moves the session; in
--     running if no turn is under way, since prompts rightly wait for a turn to end. While hibernating and restoring
--     the queue waits for the next state, in error for a person, and in hibernated for the answer to a question of a run
--     that is parked.
--
-- Prompts of a queue that is held, or that are still collected, are no reason.
--
-- It starts from unfinished prompts and from sessions_unloaded, so that what it costs does not depend on how many
-- sessions sleep. One row per session, with its oldest queued prompt: the workflow reads the rest when it opens,
-- and takes them in their order.
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
-- PromptsUnclaimed are those of some prompts that wait, in sessions in which none is being processed and whose queue is not held, and that are not
-- collected any more.
SELECT p.session_id, p.id FROM (SELECT unnest(@session_ids::text[]) AS session_id, unnest(@ids::text[]) AS id) asked
JOIN prompts p ON p.session_id = asked.session_id AND p.id = asked.id
JOIN sessions s ON s.id = p.session_id
WHERE p.status = 'queued' AND s.held_at IS NULL AND (p.collect_until IS NULL OR p.collect_until <= statement_timestamp())
  AND NOT EXISTS (SELECT FROM prompts r WHERE r.session_id = p.session_id AND r.status = 'processing');

-- name: Attended :many
-- Attended lists loaded sessions after an id that have something to do: an unfinished prompt, or a state that only
-- a workflow leads out of. Their workflow must be open. The run is an open one that has been silent since
-- a time: its workflow must know of it.
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
-- PromptsBlocked are the first queued prompts of a session, without their content.
SELECT id, ordinal, rank, mode, on_unknown, author, depth, reason, created_at, request_id, joined_to, allotted_run_id FROM prompts
WHERE session_id = @session_id AND status = 'queued' ORDER BY rank, ordinal LIMIT @max_items;

-- name: PromptFirst :one
-- PromptFirst is the prompt that is next. Prompts that are still collected are not, whatever their place; those that are joined to
-- another come after it.
SELECT id, ordinal, rank FROM prompts
WHERE session_id = @session_id AND status = 'queued' AND (collect_until IS NULL OR collect_until <= statement_timestamp())
ORDER BY rank, ordinal LIMIT 1;

-- name: PromptNext :one
-- PromptNext is PromptFirst with the whole prompt.
SELECT * FROM prompts
WHERE session_id = @session_id AND status = 'queued' AND (collect_until IS NULL OR collect_until <= statement_timestamp())
ORDER BY rank, ordinal LIMIT 1;

-- name: PromptsFirst :many
-- PromptsFirst are the prompts that are next, with how many wait in all, as PromptUnfinished counts them.
SELECT p.id, p.ordinal, p.rank, (count(*) OVER ())::bigint AS queued FROM prompts p
WHERE p.session_id = @session_id AND p.status = 'queued' AND (p.collect_until IS NULL OR p.collect_until <= statement_timestamp())
  AND (p.joined_to = '' OR NOT EXISTS (SELECT FROM prompts h WHERE h.session_id = p.session_id AND h.id = p.joined_to AND h.status IN ('queued', 'processing')))
ORDER BY p.rank, p.ordinal LIMIT @max_items;

-- name: PromptSteers :exec
-- PromptSteers has a prompt that waits given to the running turn, when its attempt takes it.
WITH counted AS (UPDATE runs SET steers = steers + 1 WHERE runs.id = @run_id)
UPDATE prompts SET steers_run = @run_id WHERE prompts.session_id = @session_id AND prompts.id = @id;

-- name: SteerNext :one
-- SteerNext is the next prompt that waits for the running turn.
SELECT * FROM prompts WHERE session_id = @session_id AND status = 'queued' AND steers_run = @run_id ORDER BY rank, ordinal LIMIT 1;

-- name: SteersWait :one
-- SteersWait reports whether a prompt waits for the running turn. It takes no lock.
SELECT EXISTS (SELECT FROM runs r JOIN prompts p ON p.session_id = r.session_id WHERE r.id = @run_id AND p.status = 'queued' AND p.steers_run = r.id);

-- name: SteersTaken :many
-- SteersTaken are the prompts that the running turn is given, in order. Those that the agent has taken in an earlier part of the run
-- are done with.
SELECT * FROM prompts WHERE session_id = @session_id AND status = 'processing' AND steers_run = @run_id
  AND (steered_part IS NULL OR steered_part = @part) ORDER BY started_at, ordinal;

-- name: SteerTake :one
UPDATE prompts SET status = 'processing', run_id = @run_id, reason = '', started_at = @at::timestamptz, joined_to = @joined_to
WHERE session_id = @session_id AND id = @id AND status = 'queued'
RETURNING *;

-- name: SteersSettle :exec
-- SteersSettle counts for the attempt alone that has the run.
UPDATE prompts p SET steered_part = @part::bigint FROM runs r
WHERE r.id = @run_id AND r.token = @token::text AND r.token <> '' AND p.session_id = r.session_id AND p.id = ANY(@ids::text[])
  AND p.status = 'processing' AND p.steers_run = r.id AND p.steered_part IS NULL;

-- name: SteersOf :many
-- SteersOf are the prompts that a run has been given, without their content.
SELECT id, (steered_part IS NOT NULL)::boolean AS taken FROM prompts
WHERE session_id = @session_id AND status = 'processing' AND steers_run = @run_id ORDER BY ordinal;

-- name: SteersEnd :many
-- SteersEnd ends prompts with the run that they were given to.
UPDATE prompts SET status = @status, reason = @reason, ended_at = @at::timestamptz
WHERE session_id = @session_id AND id = ANY(@ids::text[]) AND status = 'processing'
RETURNING *;

-- name: SteersReturn :many
-- SteersReturn puts prompts that a run was given back at their places.
UPDATE prompts SET status = 'queued', run_id = '', reason = '', started_at = NULL, ended_at = NULL, joined_to = '', steers_run = '', steered_part = NULL
WHERE session_id = @session_id AND id = ANY(@ids::text[]) AND status = 'processing'
RETURNING *;

-- name: SteersRequeue :many
-- SteersRequeue puts the prompts that the turn of a prompt was given back at their places, with that.
UPDATE prompts SET status = 'queued', run_id = '', reason = '', started_at = NULL, ended_at = NULL, joined_to = '', steers_run = '', steered_part = NULL
WHERE session_id = @session_id AND joined_to = @id AND steers_run <> '' AND status IN ('processing', 'unknown')
RETURNING *;

-- name: PromptReplace :one
-- PromptReplace replaces the content of a prompt that waits. The digest is of its first content.
UPDATE prompts SET content = @content, submitted_digest = coalesce(submitted_digest, @digest)
WHERE session_id = @session_id AND id = @id AND status = 'queued'
RETURNING *;

-- name: PromptPromote :many
-- PromptPromote puts a prompt that waits, with those that are joined to it, before all others that do.
UPDATE prompts p SET rank = least(0, (SELECT min(o.rank) FROM prompts o WHERE o.session_id = @session_id AND o.status = 'queued')) - 1
WHERE p.session_id = @session_id AND (p.id = @id OR p.joined_to = @id) AND p.status = 'queued'
RETURNING *;

-- name: PromptsClear :many
-- PromptsClear cancels every prompt that waits, without reading their content.
UPDATE prompts p SET status = 'cancelled', reason = @reason, ended_at = @at::timestamptz, collect_until = NULL
WHERE p.session_id = @session_id AND p.status = 'queued'
RETURNING p.session_id, p.id, p.ordinal, p.status, p.mode, p.on_unknown, p.author, p.depth, p.run_id, p.reason, p.created_at, p.started_at, p.ended_at, p.request_id,
    p.resolution, p.resolution_note, p.resolved_at, p.joined_to, p.allotted_run_id;

-- name: PromptTurn :one
-- PromptTurn says where the turn of a prompt begins in the log. Both positions are of one moment: began_seq is 0 as long as no run has
-- had the prompt.
SELECT s.last_seq, coalesce((
    SELECT min(r.began_seq) FROM runs r WHERE r.session_id = p.session_id AND r.prompt_id = coalesce(nullif(p.joined_to, ''), p.id)
), 0)::bigint AS began_seq
FROM prompts p JOIN sessions s ON s.id = p.session_id
WHERE p.session_id = @session_id AND p.id = @id;

-- name: PromptsPending :many
-- PromptsPending are the prompts that are not over: the one that is being processed, and then those that wait, in order.
SELECT id FROM prompts WHERE session_id = @session_id AND status IN ('queued', 'processing')
ORDER BY status = 'processing' DESC, rank, ordinal LIMIT @max_items;
