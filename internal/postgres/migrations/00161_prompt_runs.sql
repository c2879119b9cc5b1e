-- +goose Up

-- The run of a prompt is assigned when the prompt is submitted, and remains its run if the prompt
-- is queued again. The rows of runs are its claims: the first has the assigned id, a later one that
-- id and a number. A prompt of an earlier release has no run id until it is claimed, and then gets
-- the id of that claim.
ALTER TABLE prompts
    ADD COLUMN allotted_run_id text    NOT NULL DEFAULT '',
    ADD COLUMN claims          integer NOT NULL DEFAULT 0,
    ADD COLUMN base_session_id text    NOT NULL DEFAULT '', -- the session that the run was asked to continue; empty: it was submitted as a prompt
    ADD COLUMN base_bundle_id  text    NOT NULL DEFAULT ''; -- the bundle that it began with; empty: the session had worked since its newest bundle
-- The id that the workflow claims with, if it differs from the run's id, so that a repeated claim
-- is granted again.
ALTER TABLE runs ADD COLUMN claim_id text NOT NULL DEFAULT '';

-- The run that created a session with the key or was submitted to one; empty: the key belongs to
-- another kind of request.
ALTER TABLE idempotency_keys ADD COLUMN prompt_id text NOT NULL DEFAULT '';

-- Generates a time-ordered id, for an api of the previous release, which does not assign runs.
-- +goose StatementBegin
CREATE FUNCTION new_run_id() RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT 'run_' || lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || '7'
        || substr(replace(gen_random_uuid()::text, '-', ''), 14)
$$;
-- +goose StatementEnd

ALTER TABLE prompts ALTER COLUMN allotted_run_id SET DEFAULT new_run_id();

-- Runs as shown to clients: the prompt, its newest claim, and the first bundle saved after it and
-- before the next prompt.
CREATE VIEW run_views AS
SELECT p.allotted_run_id AS run_id, p.run_id AS claim_id, p.session_id, p.id AS prompt_id, p.ordinal, s.agent, p.base_session_id, p.base_bundle_id,
    p.joined_to, p.status, p.reason, p.claims, p.created_at, p.started_at, p.ended_at,
    coalesce(r.ended_at IS NOT NULL AND p.joined_to = '', false)::boolean AS used,
    coalesce(r.model, '')::text AS model, coalesce(r.input_tokens, 0)::bigint AS input_tokens, coalesce(r.output_tokens, 0)::bigint AS output_tokens,
    r.cost_usd, coalesce(r.tool_calls, 0)::bigint AS tool_calls, coalesce(b.id, '')::text AS bundle_id
FROM prompts p
JOIN sessions s ON s.id = p.session_id
LEFT JOIN runs r ON p.run_id <> '' AND r.id = p.run_id
LEFT JOIN LATERAL (
    SELECT x.id FROM bundles x
    WHERE p.status = 'completed' AND x.session_id = p.session_id AND x.prompt_id = p.id AND x.outcome = 'completed' AND NOT x.base
    ORDER BY x.no LIMIT 1
) b ON true;
