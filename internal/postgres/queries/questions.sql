-- name: QuestionInsert :exec
-- QuestionInsert keeps the first of two: an agent may repeat a question.
INSERT INTO questions (id, session_id, run_id, agent_id, asked, status, answer, reason, created_at, expires_at, resolved_at)
VALUES (@id, @session_id, @run_id, @agent_id, @asked, @status, @answer, @reason, @created_at, @expires_at, @resolved_at)
ON CONFLICT (run_id, agent_id) DO NOTHING;

-- name: QuestionGet :one
SELECT * FROM questions WHERE session_id = @session_id AND id = @id;

-- name: QuestionList :many
-- QuestionList omits questions that no person was asked. It ends with the question with which their
-- size reaches max_bytes.
SELECT questions.* FROM questions
JOIN (
    SELECT i.id, sum(octet_length(i.asked::text)) OVER (ORDER BY i.id DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM questions i
    WHERE i.session_id = @session_id AND i.reason <> 'policy' AND (@status::text = '' OR i.status = @status) AND (@before_id::text = '' OR i.id < @before_id)
    ORDER BY i.id DESC LIMIT @max_items
) q ON q.id = questions.id
WHERE q.before IS NULL OR q.before < @max_bytes::bigint
ORDER BY questions.id DESC;

-- name: QuestionsOfRuns :many
-- QuestionsOfRuns returns the questions of runs that a person was asked, oldest first.
SELECT * FROM questions WHERE session_id = @session_id AND run_id = ANY(@run_ids::text[]) AND reason <> 'policy' ORDER BY id;

-- name: QuestionInbox :many
-- QuestionInbox lists the questions of all sessions that have one status and that a person was
-- asked, before an id, newest first. It ends with the question with which their size reaches
-- max_bytes.
SELECT questions.* FROM questions
JOIN (
    SELECT i.id, sum(octet_length(i.asked::text)) OVER (ORDER BY i.id DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM (
        SELECT n.id, n.asked FROM questions n
        WHERE n.status = @status AND n.reason <> 'policy' AND n.id < @before_id
        ORDER BY n.id DESC LIMIT @max_items
    ) i
) q ON q.id = questions.id
WHERE q.before IS NULL OR q.before < @max_bytes::bigint
ORDER BY questions.id DESC;

-- name: QuestionsPending :many
-- QuestionsPending returns questions whose result the agent of a run has not received; with again,
-- also those whose result was sent, perhaps over a broken link. It omits parked questions, for
-- which no agent waits.
SELECT * FROM questions
WHERE run_id = @run_id AND parked_part = 0 AND (delivered_at IS NULL OR @again::boolean AND status IN ('answered', 'expired'))
ORDER BY id;

-- name: QuestionsAsked :many
-- QuestionsAsked returns all questions of runs, with the columns that an append needs.
SELECT id, run_id, agent_id, status FROM questions WHERE run_id = ANY(@run_ids::text[]) ORDER BY id;

-- name: QuestionResolve :one
UPDATE questions SET status = @status, answer = @answer, reason = @reason, resolved_at = @at::timestamptz
WHERE id = @id AND status = 'open'
RETURNING *;

-- name: QuestionCancel :exec
-- QuestionCancel closes a question that the agent has withdrawn, or that was answered without
-- asking a person.
UPDATE questions SET
    status = CASE WHEN status = 'open' THEN 'cancelled' ELSE status END,
    reason = CASE WHEN status = 'open' THEN @reason ELSE reason END,
    resolved_at = coalesce(resolved_at, @at::timestamptz),
    delivered_at = coalesce(delivered_at, @at::timestamptz)
WHERE id = @id;

-- name: QuestionsClose :many
-- QuestionsClose closes the questions that a finished run has left open.
UPDATE questions SET status = 'cancelled', reason = @reason, resolved_at = @at::timestamptz, delivered_at = @at::timestamptz
WHERE run_id = @run_id AND status = 'open'
RETURNING id;

-- name: QuestionsDeliver :exec
-- QuestionsDeliver changes rows only for the attempt that has the run.
UPDATE questions q SET delivered_at = clock_timestamp() FROM runs r
WHERE q.id = ANY(@ids::text[]) AND q.delivered_at IS NULL AND q.status <> 'open'
  AND r.id = q.run_id AND r.token = @token::text AND r.token <> '';

-- name: QuestionsPark :many
-- QuestionsPark assigns the open questions of a run to its next part, which begins with their
-- answers.
UPDATE questions SET parked_part = @part WHERE run_id = @run_id AND status = 'open'
RETURNING id;

-- name: QuestionsParked :many
-- QuestionsParked returns the questions with which a part of a run begins.
SELECT * FROM questions WHERE run_id = @run_id AND parked_part = @part ORDER BY id;

-- name: QuestionsAreOpen :one
SELECT EXISTS (SELECT FROM questions WHERE run_id = @run_id AND status = 'open');
