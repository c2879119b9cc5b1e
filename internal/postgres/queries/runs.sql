-- name: RunInsert :exec
INSERT INTO runs (id, no, session_id, prompt_id, generation, dispatch, began_seq, started_at, token, attempt, held_dispatch, held_attempt, doing, claim_id)
VALUES (@id, (SELECT coalesce(max(r.no), 0) + 1 FROM runs r WHERE r.session_id = @session_id), @session_id, @prompt_id, @generation, @dispatch, @began_seq, @started_at,
    @token, @attempt, @held_dispatch, @held_attempt, @doing, @claim_id);

-- name: RunGet :one
SELECT * FROM runs WHERE id = @id;

-- name: RunGetOpen :one
SELECT * FROM runs WHERE session_id = @session_id AND ended_at IS NULL;

-- name: RunAttach :exec
UPDATE runs SET token = @token, attempt = @attempt, held_dispatch = @held_dispatch, held_attempt = @held_attempt,
    doing = @doing, losses = @losses, losses_frame = @losses_frame
WHERE id = @id;

-- name: RunDoing :exec
UPDATE runs SET doing = @doing WHERE id = @id AND token = @token AND ended_at IS NULL AND doing <> 'quarantined';

-- name: RunDispatch :one
-- RunDispatch assigns the next dispatch number of a run and returns the run.
UPDATE runs SET dispatch = dispatch + 1 WHERE id = @id RETURNING *;

-- name: RunEnd :exec
-- RunEnd clears the token, so that an attempt that still holds it cannot append, and the state,
-- which is no longer needed.
UPDATE runs SET outcome = @outcome, reason = @reason, model = @model, token = '', translator = NULL,
    input_tokens = @input_tokens, output_tokens = @output_tokens, cost_usd = sqlc.narg(cost_usd), tool_calls = @tool_calls,
    ended_at = @at::timestamptz
WHERE id = @id AND ended_at IS NULL;

-- name: RunClosing :one
-- RunClosing returns a run and its prompt, whether anything else must end with the run, and what
-- decides whether the session saves a bundle: its policy, and when it last saved one. Blocks of
-- earlier runs are not live, and those of the run have positions after its first event.
SELECT sqlc.embed(r), sqlc.embed(p),
    EXISTS (SELECT FROM blocks l WHERE l.session_id = r.session_id AND l.position >= r.began_seq AND l.live) AS writes,
    EXISTS (SELECT FROM questions q WHERE q.session_id = r.session_id AND q.run_id = r.id AND q.status = 'open') AS asks,
    EXISTS (SELECT FROM session_commands c WHERE c.session_id = r.session_id AND c.status = 'pending') AS commanded,
    coalesce(nullif(s.options ->> 'checkpoint', ''), (SELECT i.checkpoint FROM installation i), 'hibernate')::text AS policy,
    b.created_at AS newest
FROM runs r
JOIN prompts p ON p.session_id = r.session_id AND p.id = r.prompt_id
JOIN sessions s ON s.id = r.session_id
LEFT JOIN bundles b ON b.id = s.head_bundle_id
WHERE r.id = @id;

-- name: RunReachedAgent :one
-- RunReachedAgent reports whether the agent has had a turn, other than this one, in the session or
-- in one that it was forked or imported from. It also returns the receipt of the restore before the
-- current sandbox, if the agent does not know of it: the receipt is not full or the session was
-- moved, and the agent has had no turn in that sandbox. While a session runs, its newest transition
-- is the one into running.
SELECT (EXISTS (
    SELECT FROM runs WHERE runs.session_id = @session_id AND runs.id <> @id AND (runs.last_frame >= 0 OR runs.outcome = 'completed')
) OR EXISTS (SELECT FROM session_forks f WHERE f.session_id = @session_id AND f.prompt_id <> '' AND f.handed_from = '')
OR EXISTS (SELECT FROM session_imports i WHERE i.session_id = @session_id AND i.remembers))::boolean AS reached, (
    SELECT t.receipt FROM sessions s JOIN session_transitions t ON t.session_id = s.id AND t.no = s.transition_no
    WHERE s.id = @session_id AND t.to_status = 'running' AND t.generation = @generation::bigint AND (t.receipt ->> 'kind' IN ('partial', 'fresh') OR t.receipt ->> 'moved' <> '')
      AND NOT EXISTS (
        SELECT FROM runs r WHERE r.session_id = @session_id AND r.generation = @generation AND r.id <> @id AND (r.last_frame >= 0 OR r.outcome = 'completed')
      )
) AS receipt;

-- name: RunsForAppend :many
SELECT id, no, session_id, token, last_frame, (ended_at IS NOT NULL)::boolean AS is_over FROM runs WHERE id = ANY(@ids::text[]);

-- name: RunsAdvance :exec
UPDATE runs r SET last_frame = a.last_frame, translator = a.translator, steers_token = CASE WHEN a.steers THEN r.token ELSE '' END
FROM (
    SELECT unnest(@ids::text[]) AS id, unnest(@last_frames::bigint[]) AS last_frame, unnest(@translators::bytea[]) AS translator,
        unnest(@steers::boolean[]) AS steers
) a
WHERE r.id = a.id;

-- name: RunsOpenStates :many
SELECT id, session_id, last_frame, translator FROM runs
WHERE ended_at IS NULL AND translator IS NOT NULL AND id > @after_id ORDER BY id LIMIT @max_items;

-- name: RunReseal :execrows
-- RunReseal changes nothing if the state has changed meanwhile.
UPDATE runs SET translator = @translator WHERE id = @id AND last_frame = @last_frame AND translator = @was AND ended_at IS NULL;

-- name: RunsUsage :many
-- RunsUsage returns the usage of ended runs.
SELECT id, model, input_tokens, output_tokens, cost_usd, tool_calls FROM runs WHERE id = ANY(@ids::text[]) AND ended_at IS NOT NULL;

-- name: RunPark :exec
-- RunPark clears the token, so that the attempt that holds it cannot append, and adds the usage of
-- the part that ends.
UPDATE runs SET parked_at = @at::timestamptz, token = '',
    parked_input_tokens = parked_input_tokens + @input_tokens::bigint, parked_output_tokens = parked_output_tokens + @output_tokens::bigint,
    parked_tool_calls = parked_tool_calls + @tool_calls::bigint,
    parked_cost_usd = CASE WHEN part = 0 THEN 0 ELSE parked_cost_usd END + sqlc.narg(cost_usd)::double precision
WHERE id = @id;

-- name: PartUsage :one
-- PartUsage returns the usage that a run has reported since an event, and the number of tool calls
-- that have ended since.
SELECT coalesce((
    SELECT e.data FROM event_log e
    WHERE e.session_no = (SELECT s.no FROM sessions s WHERE s.id = @session_id::text) AND e.seq > @after_seq::bigint AND e.type = 'metadata_update'
    ORDER BY e.seq DESC LIMIT 1
), '')::text AS reported, (
    SELECT count(*) FROM blocks b
    WHERE b.session_id = @session_id::text AND b.first_seq > @after_seq::bigint AND NOT b.removed
      AND b.block ->> 'type' = 'tool_use' AND b.block ->> 'status' NOT IN ('streaming', 'pending', 'running')
) AS tool_calls;

-- name: RunContinue :one
-- RunContinue assigns a parked run to a sandbox, as its next part. The frame before its frame_base
-- closes what the previous part left open.
UPDATE runs SET parked_at = NULL, part = part + 1, frame_base = last_frame + 2, generation = @generation, dispatch = dispatch + 1,
    doing = '', losses = 0, losses_frame = 0, part_seq = @part_seq
WHERE id = @id
RETURNING *;
