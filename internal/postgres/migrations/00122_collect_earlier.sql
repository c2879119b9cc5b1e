-- +goose Up

-- A worker of the previous release ends a run without ending the prompts joined to the run's
-- prompt. At the end of its transaction, this trigger gives them the status of that prompt: they
-- end, or are queued again. Workers of this release have done so by then, including the events.

-- +goose StatementBegin
CREATE FUNCTION run_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE prompts p SET
        status = h.status,
        run_id = CASE h.status WHEN 'queued' THEN '' ELSE p.run_id END,
        reason = CASE h.status WHEN 'queued' THEN h.reason ELSE 'collected' END,
        started_at = CASE h.status WHEN 'queued' THEN NULL ELSE p.started_at END,
        ended_at = CASE h.status WHEN 'queued' THEN NULL ELSE NEW.ended_at END
    FROM prompts h
    WHERE p.session_id = NEW.session_id AND p.status = 'processing' AND p.run_id = NEW.id AND p.joined_to <> ''
      AND h.session_id = p.session_id AND h.id = p.joined_to AND h.status <> 'processing';
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE CONSTRAINT TRIGGER run_ended AFTER UPDATE OF ended_at ON runs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.ended_at IS NULL AND NEW.ended_at IS NOT NULL) EXECUTE FUNCTION run_ended();
