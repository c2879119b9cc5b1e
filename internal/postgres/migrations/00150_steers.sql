-- +goose Up

-- Prompts with mode steer are delivered to the running turn if its agent accepts them. steers_token
-- is the token of the attempt that delivers them, written with its first events. If a worker of the
-- previous release takes over the run, it has another token and delivers none. steers counts the
-- steer prompts of the run.
ALTER TABLE runs ADD COLUMN steers_token text NOT NULL DEFAULT '', ADD COLUMN steers bigint NOT NULL DEFAULT 0;

-- steers_run is the run whose turn the prompt is for. When an attempt takes the prompt, it becomes
-- processing in that run and is joined to the run's prompt. steered_part is the part of the run in
-- which the agent accepted it; null before.
ALTER TABLE prompts ADD COLUMN steers_run text NOT NULL DEFAULT '', ADD COLUMN steered_part bigint;

-- run_ended as before. In addition it handles prompts that a worker of this release has taken for a
-- turn that a worker of the previous release ends: those accepted by the agent end with the turn.
-- For the others it is unknown whether the agent received them.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION run_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE prompts p SET
        status = h.status,
        run_id = CASE h.status WHEN 'queued' THEN '' ELSE p.run_id END,
        reason = CASE h.status WHEN 'queued' THEN h.reason ELSE 'collected' END,
        started_at = CASE h.status WHEN 'queued' THEN NULL ELSE p.started_at END,
        ended_at = CASE h.status WHEN 'queued' THEN NULL ELSE NEW.ended_at END
    FROM prompts h
    WHERE p.session_id = NEW.session_id AND p.status = 'processing' AND p.run_id = NEW.id AND p.joined_to <> '' AND p.steers_run = ''
      AND h.session_id = p.session_id AND h.id = p.joined_to AND h.status <> 'processing';
    IF NEW.steers > 0 THEN
        UPDATE prompts p SET status = 'queued', run_id = '', reason = '', started_at = NULL, joined_to = '', steers_run = '', steered_part = NULL
        FROM prompts h
        WHERE p.session_id = NEW.session_id AND p.status = 'processing' AND p.run_id = NEW.id AND p.steers_run = NEW.id
          AND h.session_id = p.session_id AND h.id = NEW.prompt_id
          AND (h.status = 'queued' OR p.steered_part IS NULL AND p.on_unknown = 'retry');
        UPDATE prompts p SET
            status = CASE WHEN p.steered_part IS NOT NULL THEN h.status WHEN p.on_unknown = 'fail' THEN 'failed' ELSE 'unknown' END,
            reason = 'joined', ended_at = NEW.ended_at
        FROM prompts h
        WHERE p.session_id = NEW.session_id AND p.status = 'processing' AND p.run_id = NEW.id AND p.steers_run = NEW.id
          AND h.session_id = p.session_id AND h.id = NEW.prompt_id AND h.status <> 'processing';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
