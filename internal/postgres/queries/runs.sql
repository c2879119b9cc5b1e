-- name: RunInsert :exec
INSERT INTO runs (id, no, session_id, prompt_id, generation, dispatch, began_seq, started_at, token, attempt, held_dispatch, held_attempt, doing, claim_id)
VALUES (@id, (SELECT coalesce(max(r.no), 0) + 1 FROM runs r WHERE r.session_id = @session_id), @session_id, @prompt_id, @generation, @dispatch, @began_seq, @started_at,
    @token, @attempt, @held_dispatch, @held_attempt, @doing, @claim_id);

-- name: RunGet :one
SELECT * FROM runs WHERE id = @id;

-- name: RunOfClaim :one
-- RunOfClaim returns the run that a claim was granted, and its sandbox. It looks at the newest runs
-- only: others may have followed in the same attendance, which has a bound.
SELECT r.id, r.prompt_id, r.generation, r.dispatch, b.sandbox_id, b.reserved_at, b.deadline, p.on_unknown
FROM runs r
JOIN prompts p ON p.session_id = r.session_id AND p.id = r.prompt_id
JOIN sandboxes b ON b.session_id = r.session_id AND b.generation = r.generation
WHERE r.session_id = @session_id AND r.claim_id = @claim_id AND r.no > (SELECT coalesce(max(n.no), 0) - 128 FROM runs n WHERE n.session_id = @session_id);

-- name: RunGetOpen :one
-- RunGetOpen looks at the newest run only: a run begins after the one before it has ended. Whatever
-- Postgres knows about the table, it reads one entry of the index of run numbers. An open run has no
-- outcome, as well as no end; a condition on its end would suit the index of all open runs.
SELECT * FROM runs
WHERE id = (SELECT n.id FROM runs n WHERE n.session_id = @session_id ORDER BY n.no DESC LIMIT 1) AND outcome = '';

-- name: RunsFollow :one
-- RunsFollow reports whether a run began after all of the given ones; false if none is given.
SELECT EXISTS (
    SELECT FROM runs n WHERE n.session_id = @session_id AND n.no > (SELECT max(r.no) FROM runs r WHERE r.session_id = @session_id AND r.id = ANY(@run_ids::text[]))
)::boolean;

-- name: RunAttach :exec
UPDATE runs SET token = @token, attempt = @attempt, held_dispatch = @held_dispatch, held_attempt = @held_attempt,
    doing = @doing, losses = @losses, losses_frame = @losses_frame
WHERE id = @id;

-- name: RunDoing :exec
UPDATE runs SET doing = @doing WHERE id = @id AND token = @token AND outcome = '' AND doing <> 'quarantined';

-- name: RunDispatch :one
-- RunDispatch assigns the next dispatch number of a run and returns the run.
UPDATE runs SET dispatch = dispatch + 1 WHERE id = @id RETURNING *;

-- name: RunEnd :exec
-- RunEnd clears the token, so that an attempt that still holds it cannot append, and the state,
-- which is no longer needed. See RunGetOpen for the condition.
UPDATE runs SET outcome = @outcome, reason = @reason, model = @model, token = '', translator = NULL, last_frame = greatest(last_frame, @last_frame),
    input_tokens = @input_tokens, output_tokens = @output_tokens, cost_usd = sqlc.narg(cost_usd), tool_calls = @tool_calls,
    ended_at = @at::timestamptz
WHERE id = @id AND outcome = '';

-- name: RunClosing :one
-- RunClosing returns a run and its prompt, what else must end with the run, and what
-- decides whether the session saves a bundle: its policy, and when it last saved one. Blocks of
-- earlier runs are not live, and those of the run have positions after its first event.
SELECT sqlc.embed(r), sqlc.embed(p),
    ARRAY(SELECT l.conversation_id || '/' || l.block_id FROM blocks l WHERE l.session_id = r.session_id AND l.position >= r.began_seq AND l.live)::text[] AS writes,
    EXISTS (SELECT FROM questions q WHERE q.session_id = r.session_id AND q.run_id = r.id AND q.status = 'open') AS asks,
    EXISTS (SELECT FROM session_commands c WHERE c.session_id = r.session_id AND c.status = 'pending') AS commanded,
    coalesce(nullif(s.options ->> 'checkpoint', ''), (SELECT i.checkpoint FROM installation i), 'hibernate')::text AS policy,
    b.created_at AS newest
FROM runs r
JOIN prompts p ON p.session_id = r.session_id AND p.id = r.prompt_id
JOIN sessions s ON s.id = r.session_id
LEFT JOIN bundles b ON b.id = s.head_bundle_id
WHERE r.id = @id;

-- name: RunSurroundings :one
-- RunSurroundings returns what a worker needs for a run: how the agent of the session is started, its
-- sandbox, how much of its workspace is stored, and whether the agent has had a turn, other than this
-- one, in the session or in one that it was forked or imported from. It also returns the receipt of
-- the restore before the current sandbox, if the agent does not know of it: the receipt is not full or
-- the session was moved, and the agent has had no turn in that sandbox. While a session runs, its
-- newest transition is the one into running. The runs are only compared with a transition that has
-- such a receipt, because the first run of a sandbox has to be compared with all of them.
SELECT s.agent, s.profile, s.options, coalesce(f.memory_id, i.memory_id, '')::text AS memory_id, coalesce(f.handed_from, '')::text AS handed_from,
    coalesce(b.sandbox_id, '')::text AS sandbox_id,
    coalesce(w.lineage, '')::text AS lineage, coalesce(w.seq, 0)::bigint AS seq, coalesce(w.base, '')::text AS base, coalesce(w.diff_key, '')::text AS diff_key,
    (EXISTS (
        SELECT FROM runs WHERE runs.session_id = s.id AND runs.id <> @id AND (runs.last_frame >= 0 OR runs.outcome = 'completed')
    ) OR coalesce(f.prompt_id <> '' AND f.handed_from = '', false) OR coalesce(i.remembers, false))::boolean AS reached, (
        SELECT t.receipt FROM session_transitions t
        WHERE t.session_id = s.id AND t.no = s.transition_no
          AND t.to_status = 'running' AND t.generation = @generation::bigint AND (t.receipt ->> 'kind' IN ('partial', 'fresh') OR t.receipt ->> 'moved' <> '')
          AND NOT EXISTS (
            SELECT FROM runs r WHERE r.session_id = t.session_id AND r.generation = t.generation AND r.id <> @id AND (r.last_frame >= 0 OR r.outcome = 'completed')
          )
    ) AS receipt
FROM sessions s
LEFT JOIN session_forks f ON f.session_id = s.id
LEFT JOIN session_imports i ON i.session_id = s.id
LEFT JOIN sandboxes b ON b.session_id = s.id AND b.generation = @generation
LEFT JOIN workspaces w ON w.session_id = s.id
WHERE s.id = @session_id;

-- name: RunsForAppend :many
SELECT id, no, session_id, token, last_frame, (ended_at IS NOT NULL)::boolean AS is_over FROM runs WHERE id = ANY(@ids::text[]);

-- name: AppendWrite :exec
-- AppendWrite writes the changes of a batch of appends: it advances runs and sessions, and adds
-- events and blocks. It is RunsAdvance with three more changes of rows that the transaction has
-- locked. One statement costs less than four, and no part reads what another one changes: run numbers
-- are those of runs that exist.
--
-- It changes indexed columns of a session only if the title changes, so that an append updates the
-- row of its session in place. The activity of a session is written when prompts are submitted and
-- when turns start and end.
WITH run AS (
    UPDATE runs r SET last_frame = a.last_frame, translator = a.translator, steers_token = CASE WHEN a.steers THEN r.token ELSE '' END
    FROM (
        SELECT unnest(@run_ids::text[]) AS id, unnest(@last_frames::bigint[]) AS last_frame, unnest(@translators::bytea[]) AS translator,
            unnest(@steers::boolean[]) AS steers
    ) a
    WHERE r.id = a.id
), session AS (
    UPDATE sessions s SET last_seq = a.last_seq, title = a.title
    FROM (SELECT unnest(@session_ids::text[]) AS id, unnest(@last_seqs::bigint[]) AS last_seq, unnest(@titles::text[]) AS title) a
    WHERE s.id = a.id
), block AS (
    INSERT INTO blocks (session_id, conversation_id, block_id, first_seq, position, text_seq, live, removed, block, size)
    SELECT a.session_id, a.conversation_id, a.block_id, a.first_seq, a.position, a.text_seq, a.live, a.removed, a.block::json, octet_length(a.block)
    FROM (SELECT unnest(@block_session_ids::text[]) AS session_id, unnest(@block_conversation_ids::text[]) AS conversation_id, unnest(@block_ids::text[]) AS block_id,
        unnest(@first_seqs::bigint[]) AS first_seq, unnest(@positions::bigint[]) AS position, unnest(@text_seqs::bigint[]) AS text_seq,
        unnest(@lives::boolean[]) AS live, unnest(@removeds::boolean[]) AS removed, unnest(@blocks::text[]) AS block) a
    ON CONFLICT (session_id, conversation_id, block_id) DO UPDATE SET
        position = excluded.position, text_seq = excluded.text_seq, live = excluded.live, removed = excluded.removed, block = excluded.block, size = excluded.size
)
INSERT INTO event_log (session_no, seq, at, run_no, conversation_no, type, data)
SELECT a.session_no, a.seq, a.at,
    CASE WHEN a.run_no >= 0 THEN a.run_no ELSE coalesce((SELECT r.no FROM runs r WHERE r.id = a.event_run_id), 0) END,
    CASE a.conversation_id WHEN '' THEN 0 WHEN 'main' THEN 1
        ELSE (SELECT c.no FROM event_conversations c WHERE c.session_no = a.session_no AND c.id = a.conversation_id) END,
    a.type, a.data
FROM (SELECT unnest(@session_nos::bigint[]) AS session_no, unnest(@seqs::bigint[]) AS seq, unnest(@types::text[]) AS type,
    unnest(@conversation_ids::text[]) AS conversation_id, unnest(@event_run_ids::text[]) AS event_run_id, unnest(@run_nos::integer[]) AS run_no,
    unnest(@ats::timestamptz[]) AS at, unnest(@datas::text[]) AS data) a;

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
UPDATE runs SET translator = @translator WHERE id = @id AND last_frame = @last_frame AND translator = @was AND outcome = '';

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
