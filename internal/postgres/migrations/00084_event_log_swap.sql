-- +goose Up

-- +goose StatementBegin
DO $$ BEGIN
    IF EXISTS (SELECT FROM event_log_copied WHERE through < upto OR numbered < upto) THEN
        RAISE EXCEPTION 'the events of some sessions are not copied';
    END IF;
END $$;
-- +goose StatementEnd

ALTER TABLE sessions ALTER COLUMN no SET NOT NULL;
ALTER TABLE runs ALTER COLUMN no SET NOT NULL;
DROP INDEX runs_session; -- replaced by runs_number

DROP TABLE events;
DROP TABLE event_log_copied;
DROP FUNCTION event_log_mirror;
DROP PROCEDURE event_log_copy;
DROP PROCEDURE event_log_number;

-- Events with the ids of their session, run and conversation, for people and for processes of the
-- previous release.
CREATE VIEW events AS
SELECT s.id AS session_id, e.seq, e.type,
    coalesce(c.id, CASE e.conversation_no WHEN 1 THEN 'main' ELSE '' END) AS conversation_id,
    coalesce(r.id, '') AS run_id, NULL::bigint AS frame, NULL::integer AS n, e.at, e.data::json AS data, octet_length(e.data) AS size
FROM event_log e
JOIN sessions s ON s.no = e.session_no
LEFT JOIN runs r ON e.run_no > 0 AND r.session_id = s.id AND r.no = e.run_no
LEFT JOIN event_conversations c ON e.conversation_no > 1 AND c.session_no = e.session_no AND c.no = e.conversation_no;

-- +goose StatementBegin
CREATE FUNCTION events_insert() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
BEGIN
    SELECT s.no INTO number FROM sessions s WHERE s.id = NEW.session_id;
    IF number IS NULL THEN
        RAISE foreign_key_violation USING MESSAGE = 'there is no session ' || NEW.session_id;
    END IF;
    PERFORM event_log_add(number, NEW.seq, NEW.at, NEW.run_id, NEW.conversation_id, NEW.type, NEW.data::text);
    RETURN NEW;
END $$;
-- +goose StatementEnd

CREATE TRIGGER events_insert INSTEAD OF INSERT ON events FOR EACH ROW EXECUTE FUNCTION events_insert();
