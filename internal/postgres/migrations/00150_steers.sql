-- +goose Up

-- Prompts of the mode steer are given to the running turn where its agent takes them. steers_token is the token of the attempt that gives
-- them, written with its first events: a worker of the release before that takes the run over has another token, and gives none. steers
-- counts the prompts of the run.
ALTER TABLE runs ADD COLUMN steers_token text NOT NULL DEFAULT '', ADD COLUMN steers bigint NOT NULL DEFAULT 0;

-- steers_run is the run whose turn the prompt is for. An attempt takes it: it is processing then, in that run, and joined to the run's
-- prompt. steered_part is the part of the run in which the agent has taken it; null before.
ALTER TABLE prompts ADD COLUMN steers_run text NOT NULL DEFAULT '', ADD COLUMN steered_part bigint;

-- run_ended as before, and for prompts that a worker of this release has taken for a turn that one of the release before has ended: those that the
-- agent had taken by then end with it. Of the others it is not known whether the agent has had them.
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
