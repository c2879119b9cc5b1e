-- +goose Up

-- Lifecycle events of all sessions in one order, for programs that manage many sessions: changes of
-- sessions, prompts and questions. A row references an event of the log and has no content.
CREATE TABLE lifecycle_events (
    place      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- in the order of writes; within a session, the order of its log
    n          bigint,               -- position in the order of all events; null until LifecycleNumber has seen the row committed
    session_no bigint      NOT NULL,
    seq        bigint      NOT NULL, -- of the event in the session's log; 0: none
    type       text        NOT NULL,
    at         timestamptz NOT NULL
);
CREATE UNIQUE INDEX lifecycle_events_n ON lifecycle_events (n) WHERE n IS NOT NULL;
CREATE INDEX lifecycle_events_new ON lifecycle_events (place) WHERE n IS NULL;
CREATE INDEX lifecycle_events_session ON lifecycle_events (session_no);

-- Positions are assigned to committed rows only, by one transaction at a time, which locks this
-- row. A reader at a position has therefore read all events up to it, regardless of the order in
-- which transactions commit.
CREATE TABLE lifecycle_head (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    n        bigint NOT NULL, -- the newest assigned position
    kept     bigint NOT NULL  -- rows up to and with this position have been deleted
);
INSERT INTO lifecycle_head (n, kept) VALUES (0, 0);

-- +goose StatementBegin
CREATE FUNCTION lifecycle_event() RETURNS trigger LANGUAGE plpgsql AS $$
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
    WHEN 'question' THEN name := 'question.asked';
    ELSE name := 'question.resolved';
    END CASE;
    INSERT INTO lifecycle_events (session_no, seq, type, at) VALUES (NEW.session_no, NEW.seq, name, NEW.at);
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER lifecycle_event AFTER INSERT ON event_log FOR EACH ROW
    WHEN (NEW.type IN ('status', 'prompt', 'question', 'question_resolved')) EXECUTE FUNCTION lifecycle_event();

-- +goose StatementBegin
CREATE FUNCTION lifecycle_created() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO lifecycle_events (session_no, seq, type, at) VALUES (NEW.no, 0, 'session.created', NEW.created_at);
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER lifecycle_created AFTER INSERT ON sessions FOR EACH ROW EXECUTE FUNCTION lifecycle_created();
