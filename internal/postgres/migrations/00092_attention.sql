-- +goose Up

-- How a person resolved a prompt whose outcome was lost.
ALTER TABLE prompts
    ADD COLUMN resolution text NOT NULL DEFAULT '',
    ADD COLUMN resolution_note text NOT NULL DEFAULT '',
    ADD COLUMN resolved_at timestamptz,
    ADD CONSTRAINT prompts_resolution CHECK (resolution IN ('', 'retry', 'resolve', 'dismiss') AND (resolution = '') = (resolved_at IS NULL)) NOT VALID;

-- The current step in starting the session's sandbox and preparing its workspace.
ALTER TABLE sessions ADD COLUMN step text NOT NULL DEFAULT '';

CREATE OR REPLACE VIEW session_views AS
SELECT
    s.id, s.status, s.status_reason, s.agent, s.profile, s.title, s.workspace, s.parent_id, s.forked_from, s.lazy,
    s.created_at, s.last_activity_at, s.idle_timeout_ns, s.metadata, s.options, s.generation, s.transition_no,
    s.receipt, s.loaded, s.active_seconds, s.messages, s.tool_calls, s.input_tokens, s.output_tokens, s.cost_usd,
    (SELECT count(*) FROM prompts p WHERE p.session_id = s.id AND p.status = 'queued')::bigint AS queued,
    (SELECT count(*) FROM prompts p WHERE p.session_id = s.id AND p.status = 'processing')::bigint AS processing,
    coalesce(b.sandbox_id, '')::text AS sandbox_id,
    coalesce(b.status, '')::text AS sandbox_status,
    coalesce(b.seen_at, b.reserved_at, s.created_at)::timestamptz AS sandbox_seen_at,
    (SELECT count(*) FROM prompts p WHERE p.session_id = s.id AND p.status = 'unknown' AND p.reason <> 'reverted')::bigint AS unresolved,
    (SELECT count(*) FROM questions q WHERE q.session_id = s.id AND q.status = 'open')::bigint AS questions_open,
    s.step, s.running_since
FROM sessions s
LEFT JOIN sandboxes b ON b.session_id = s.id AND b.generation = s.generation AND b.sandbox_id <> '' AND b.ended_at IS NULL
    AND s.status NOT IN ('hibernated', 'terminated');
