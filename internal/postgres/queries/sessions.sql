-- name: SessionInsert :execrows
-- SessionInsert inserts nothing if the id belonged to a purged session.
INSERT INTO sessions (id, status, agent, profile, title, title_given, workspace, parent_id, forked_from, lazy,
    created_at, last_activity_at, idle_timeout_ns, metadata, options)
SELECT @id, 'initializing', @agent, @profile, @title, @title::text <> '', @workspace, @parent_id, @forked_from, @lazy,
    @created_at, @created_at, @idle_timeout_ns, @metadata, @options
WHERE NOT EXISTS (SELECT FROM purges p WHERE p.session_id = @id);

-- name: SessionGet :one
SELECT * FROM session_views WHERE id = @id;

-- name: SessionOpened :one
-- SessionOpened returns columns of a session that only its workflow reads.
SELECT error_cause, CASE WHEN title_given THEN title ELSE '' END::text AS given_title FROM sessions WHERE id = @id;

-- name: SessionLaunch :one
-- SessionLaunch returns how the agent of a session is started.
SELECT s.agent, s.profile, s.options, coalesce(f.memory_id, i.memory_id, '')::text AS memory_id, coalesce(f.handed_from, '')::text AS handed_from
FROM sessions s LEFT JOIN session_forks f ON f.session_id = s.id LEFT JOIN session_imports i ON i.session_id = s.id WHERE s.id = @id;

-- name: SessionNeeds :one
-- SessionNeeds returns the agent of a session and its profile, and the names for which a secret is
-- stored. The names are unnested, because Postgres would plan each execution again for the number of
-- elements of an array in a condition, which takes ten times as long as the execution.
SELECT s.agent, s.profile,
    ARRAY(SELECT c.name FROM secrets c WHERE c.name IN (SELECT unnest(sqlc.arg(names)::text[])) ORDER BY c.name)::text[] AS present
FROM sessions s WHERE s.id = @id;

-- name: SessionViews :many
SELECT * FROM session_views WHERE id = ANY(@ids::text[]);

-- name: SessionLock :one
-- SessionLock is the first statement of every write to a session. NO KEY, because the key never
-- changes and foreign keys to it must not wait. It also returns the server's time, read once the
-- row is locked: a subquery with a lock is executed before the columns around it. The last column
-- makes Postgres plan the later statements of the transaction once per connection, without scans of
-- whole tables, which may be small while a statement is planned: see genericPlans. A statement for
-- each of the three would cost more than what they do.
SELECT l.*, clock_timestamp()::timestamptz AS now, concat(set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true))::text AS plans
FROM (
    SELECT id, no, status, status_reason, generation, transition_no, last_ordinal, last_seq, head_bundle_id, loaded, title, lazy, signalled_at, workflow_run,
        idle_timeout_ns, attendant, last_activity_at, agent, held_at, held_reason, title_given, step
    FROM sessions WHERE id = @id FOR NO KEY UPDATE
) l;

-- name: SessionsLock :many
-- SessionsLock takes the locks in the order of ids, which rules out deadlocks. It returns the time
-- at which each session was locked, like SessionLock.
SELECT l.*, clock_timestamp()::timestamptz AS now
FROM (
    SELECT id, no, status, generation, last_seq, title, title_given
    FROM sessions WHERE id = ANY(@ids::text[]) ORDER BY id FOR NO KEY UPDATE
) l;

-- name: SessionAdvance :exec
UPDATE sessions SET last_seq = @last_seq WHERE id = @id;

-- name: SessionTouch :exec
UPDATE sessions SET last_activity_at = greatest(last_activity_at, @at::timestamptz) WHERE id = @id;

-- name: SessionSetLoaded :exec
-- SessionSetLoaded also ends an attendance: the workflow that opens, moves or closes a session
-- claims its prompts.
UPDATE sessions SET loaded = @loaded, attendant = '' WHERE id = @id;

-- name: SessionSetOrdinal :exec
UPDATE sessions SET last_ordinal = @last_ordinal, last_activity_at = greatest(last_activity_at, @at::timestamptz) WHERE id = @id;

-- name: SessionSetGeneration :exec
UPDATE sessions SET generation = @generation WHERE id = @id;

-- name: SessionSetHead :exec
UPDATE sessions SET head_bundle_id = @head_bundle_id WHERE id = @id;

-- name: SessionPatch :exec
UPDATE sessions SET
    title = coalesce(sqlc.narg(title), title),
    title_given = title_given OR sqlc.narg(title)::text IS NOT NULL,
    metadata = coalesce(sqlc.narg(metadata)::json, metadata),
    idle_timeout_ns = coalesce(sqlc.narg(idle_timeout_ns), idle_timeout_ns),
    options = coalesce(sqlc.narg(options)::json, options),
    profile = coalesce(sqlc.narg(profile), profile),
    workspace = CASE WHEN @workspace_given::boolean THEN sqlc.narg(workspace)::json ELSE workspace END
WHERE id = @id;

-- name: SessionTransit :exec
-- SessionTransit applies a transition. On leaving running, it adds the time spent there. A session
-- that has just entered running does not count as idle.
UPDATE sessions SET
    status = @status,
    status_reason = @reason,
    error_cause = @error_cause,
    transition_no = @no,
    step = '',
    attendant = '',
    receipt = coalesce(sqlc.narg(receipt)::json, receipt),
    active_seconds = active_seconds + coalesce(greatest(0, date_part('epoch', sqlc.arg(at)::timestamptz - running_since)), 0),
    running_since = CASE WHEN @status = 'running' THEN @at::timestamptz END,
    last_activity_at = CASE WHEN @status = 'running' THEN greatest(last_activity_at, @at::timestamptz) ELSE last_activity_at END
WHERE id = @id;

-- name: SessionSetStep :exec
UPDATE sessions SET step = @step WHERE id = @id AND step <> @step;

-- name: SessionSubmitted :exec
-- SessionSubmitted stores the changes of a session by a new prompt in one version of the row.
UPDATE sessions SET
    last_ordinal = @last_ordinal,
    last_seq = @last_seq,
    last_activity_at = greatest(last_activity_at, @at::timestamptz),
    signalled_at = CASE WHEN @is_signalled::boolean THEN @at::timestamptz ELSE signalled_at END
WHERE id = @id;

-- name: SessionCount :exec
-- SessionCount stores the changes of a session by the end of a turn. The attendant is the attempt
-- that has asked to claim the next prompt. The totals stop growing at usage.MaxTotalCount and
-- MaxTotalCostUSD, since a sum beyond the range of its type would be an error, and no turn of the
-- session could end any more. An unknown cost adds nothing to a known sum; the sum is unknown only
-- if all costs are.
UPDATE sessions SET
    last_seq = @last_seq,
    messages = messages + 1,
    tool_calls = least(tool_calls::numeric + @tool_calls::bigint, 9007199254740991),
    input_tokens = least(input_tokens::numeric + @input_tokens::bigint, 9007199254740991),
    output_tokens = least(output_tokens::numeric + @output_tokens::bigint, 9007199254740991),
    cost_usd = CASE WHEN sqlc.narg(cost_usd)::float8 IS NULL THEN nullif(cost_usd, 0)
        ELSE least(coalesce(cost_usd, 0) + sqlc.narg(cost_usd)::float8, 1e12) END,
    attendant = @attendant,
    last_activity_at = greatest(last_activity_at, @at::timestamptz)
WHERE id = @id;

-- name: TransitionGet :one
SELECT * FROM session_transitions WHERE session_id = @session_id AND no = @no;

-- name: TransitionInsert :exec
INSERT INTO session_transitions (session_id, no, from_status, to_status, event, reason, generation, receipt, at, command_id)
VALUES (@session_id, @no, @from_status, @to_status, @event, @reason, @generation, @receipt, @at, @command_id);

-- name: IdempotencyInsert :execrows
INSERT INTO idempotency_keys (key, digest, session_id, created_at)
VALUES (@key, @digest, @session_id, @created_at)
ON CONFLICT (key) DO NOTHING;

-- name: IdempotencyGet :one
SELECT * FROM idempotency_keys WHERE key = @key;

-- name: IdempotencyPrompt :exec
-- IdempotencyPrompt assigns a key to a prompt of its session.
UPDATE idempotency_keys SET prompt_id = @prompt_id WHERE key = @key;

-- name: IdempotencyPurge :exec
-- IdempotencyPurge deletes expired keys, possibly including the requested one.
DELETE FROM idempotency_keys WHERE created_at < @before;

-- name: InstallationEnsure :exec
INSERT INTO installation (id) VALUES (@id) ON CONFLICT (single) DO NOTHING;

-- name: InstallationGet :one
SELECT id FROM installation;

-- name: SessionSetTitle :exec
UPDATE sessions SET title = @title WHERE id = @id AND NOT title_given;

-- name: SessionTryLock :one
-- SessionTryLock is SessionLock without waiting: it returns no row if another transaction has
-- locked the session.
SELECT l.*, clock_timestamp()::timestamptz AS now, concat(set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true))::text AS plans
FROM (
    SELECT id, no, status, status_reason, generation, transition_no, last_ordinal, last_seq, head_bundle_id, loaded, title, lazy, signalled_at, workflow_run,
        idle_timeout_ns, attendant, last_activity_at, agent, held_at, held_reason, title_given, step
    FROM sessions WHERE id = @id FOR NO KEY UPDATE SKIP LOCKED
) l;

-- name: SessionsTryLock :many
-- SessionsTryLock is SessionsLock without the sessions that other transactions have locked.
SELECT l.*, clock_timestamp()::timestamptz AS now
FROM (
    SELECT id, no, status, generation, last_seq, title, title_given
    FROM sessions WHERE id = ANY(@ids::text[]) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
) l;

-- name: SessionExists :one
SELECT EXISTS (SELECT FROM sessions WHERE id = @id);

-- name: Clock :one
-- Clock returns the server's current time. All stored times come from it, after the lock, so that
-- order and ages do not depend on the clocks of the writing processes.
SELECT clock_timestamp()::timestamptz AS now;

-- name: SessionSetWorkflowRun :exec
UPDATE sessions SET workflow_run = @workflow_run WHERE id = @id AND workflow_run <> @workflow_run;

-- name: SessionWorkflowRun :one
SELECT workflow_run FROM sessions WHERE id = @id;

-- name: SessionLeave :exec
-- SessionLeave ends an attendance: the workflow claims prompts again.
UPDATE sessions SET attendant = '' WHERE id = @id AND attendant <> '';

-- name: SessionsAwake :many
-- SessionsAwake has a cost bounded by the number of sandboxes, not of sessions.
SELECT s.id, s.status, coalesce(r.id, '')::text AS run_id
FROM sessions s LEFT JOIN runs r ON r.session_id = s.id AND r.ended_at IS NULL
WHERE s.status IN ('running', 'hibernating', 'restoring');

-- name: SessionHold :exec
-- SessionHold holds the queue of a session, or releases it if held_at is NULL.
UPDATE sessions SET held_at = sqlc.narg(held_at), held_reason = @held_reason WHERE id = @id;
