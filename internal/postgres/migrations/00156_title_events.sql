-- +goose Up

-- A new session title is also a lifecycle event, because session lists show it.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION lifecycle_event() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    name text;
BEGIN
    CASE NEW.type
    WHEN 'status' THEN
        CASE NEW.data::json ->> 'status'
        WHEN 'running' THEN name := 'session.running';
        WHEN 'hibernated' THEN name := 'session.hibernated';
        WHEN 'restoring' THEN name := 'session.restoring';
        WHEN 'error' THEN name := 'session.error';
        WHEN 'terminated' THEN name := 'session.completed';
        ELSE RETURN NULL;
        END CASE;
    WHEN 'prompt' THEN
        name := NEW.data::json #>> '{prompt,status}';
        IF name IN ('completed', 'failed', 'cancelled', 'unknown') THEN
            name := 'prompt.' || name;
        ELSE
            RETURN NULL;
        END IF;
    WHEN 'title' THEN name := 'session.title';
    WHEN 'question' THEN name := 'question.asked';
    ELSE name := 'question.resolved';
    END CASE;
    INSERT INTO lifecycle_events (session_no, seq, type, at) VALUES (NEW.session_no, NEW.seq, name, NEW.at);
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE OR REPLACE TRIGGER lifecycle_event AFTER INSERT ON event_log FOR EACH ROW
    WHEN (NEW.type IN ('status', 'prompt', 'title', 'question', 'question_resolved')) EXECUTE FUNCTION lifecycle_event();
