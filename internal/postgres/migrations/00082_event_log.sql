-- +goose Up

-- Events move to a table with smaller rows: a session is identified by an 8-byte number instead of
-- a 36-byte text, runs and conversations by numbers within their session, and one index serves both
-- uniqueness and reads. This migration creates the tables, 00083 copies the events online, and
-- 00084 replaces the old table. Processes of the previous release may run throughout.

-- The number of a session is internal and never reused. New sessions get theirs by default,
-- existing ones from 00083: adding a column with a volatile default would rewrite the table and all
-- its indexes under a lock.
CREATE SEQUENCE sessions_no_seq;
ALTER TABLE sessions ADD COLUMN no bigint;
ALTER TABLE sessions ALTER COLUMN no SET DEFAULT nextval('sessions_no_seq');
ALTER SEQUENCE sessions_no_seq OWNED BY sessions.no;

-- The number of a run within its session, starting at 1. Existing rows get it from 00083; the
-- trigger assigns it if the writer is of a release without run numbers.
ALTER TABLE runs ADD COLUMN no integer;

-- +goose StatementBegin
CREATE FUNCTION run_number() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT coalesce(max(r.no), 0) + 1 INTO NEW.no FROM runs r WHERE r.session_id = NEW.session_id;
    RETURN NEW;
END $$;
-- +goose StatementEnd

CREATE TRIGGER runs_number BEFORE INSERT ON runs FOR EACH ROW WHEN (NEW.no IS NULL) EXECUTE FUNCTION run_number();

-- No foreign key: rows are only written under the lock of their session's row, and a session is
-- deleted only after its events. No column for the frame of an event: runs.last_frame, under the
-- same lock, records which frames are committed.
CREATE TABLE event_log (
    session_no      bigint      NOT NULL,
    seq             bigint      NOT NULL,
    at              timestamptz NOT NULL,
    run_no          integer     NOT NULL, -- 0: none
    conversation_no integer     NOT NULL, -- 0: none, 1: main, others: event_conversations
    type            text        NOT NULL,
    data            text        NOT NULL, -- JSON as the agent printed it, checked by the writer
    CONSTRAINT event_log_pkey PRIMARY KEY (session_no, seq),
    CONSTRAINT event_log_seq CHECK (seq >= 1)
) WITH (
    -- A table of 100 million rows is vacuumed after one million deleted or inserted rows instead of
    -- twenty million.
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_insert_scale_factor = 0.01, autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0.02,
    toast.autovacuum_vacuum_scale_factor = 0.02
);

-- The conversations of subagents, numbered from 2 within their session.
CREATE TABLE event_conversations (
    session_no bigint  NOT NULL,
    no         integer NOT NULL,
    id         text    NOT NULL,
    CONSTRAINT event_conversations_pkey PRIMARY KEY (session_no, no),
    CONSTRAINT event_conversations_id UNIQUE (session_no, id),
    CONSTRAINT event_conversations_no CHECK (no >= 2)
);

-- event_log_add writes one event by the ids of its session, run and conversation.
-- +goose StatementBegin
CREATE FUNCTION event_log_add(p_session_no bigint, p_seq bigint, p_at timestamptz, p_run_id text, p_conversation_id text, p_type text, p_data text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_conversation_id NOT IN ('', 'main') THEN
        INSERT INTO event_conversations (session_no, no, id)
        SELECT p_session_no, coalesce(max(c.no), 1) + 1, p_conversation_id FROM event_conversations c WHERE c.session_no = p_session_no
        ON CONFLICT ON CONSTRAINT event_conversations_id DO NOTHING;
    END IF;
    INSERT INTO event_log (session_no, seq, at, run_no, conversation_no, type, data)
    VALUES (p_session_no, p_seq, p_at,
        coalesce((SELECT r.no FROM runs r WHERE r.id = p_run_id), 0),
        CASE p_conversation_id WHEN '' THEN 0 WHEN 'main' THEN 1
            ELSE (SELECT c.no FROM event_conversations c WHERE c.session_no = p_session_no AND c.id = p_conversation_id) END,
        p_type, p_data);
END $$;
-- +goose StatementEnd

-- The progress of the copy. upto is the count of sessions that exist now. Sessions have been
-- numbered up to numbered and copied up to through. Later sessions have larger numbers, and their
-- events are written to both tables from the first event on.
CREATE TABLE event_log_copied (
    numbered bigint NOT NULL,
    through  bigint NOT NULL,
    upto     bigint NOT NULL
);
INSERT INTO event_log_copied (numbered, through, upto) SELECT 0, 0, count(*) FROM sessions;
SELECT setval('sessions_no_seq', upto + 1, false) FROM event_log_copied;

-- event_log_number numbers existing sessions, a thousand per transaction. It reads pages of all
-- sessions in primary key order: with a condition on no, a column without statistics, the planner
-- would read the whole table for each page.
-- +goose StatementBegin
CREATE PROCEDURE event_log_number() LANGUAGE plpgsql AS $$
DECLARE
    after text := '';
    last text;
    page text[];
BEGIN
    LOOP
        SELECT max(s.id), coalesce(array_agg(s.id ORDER BY s.id) FILTER (WHERE s.no IS NULL), '{}') INTO last, page
        FROM (SELECT id, no FROM sessions WHERE id > after ORDER BY id LIMIT 1000 FOR NO KEY UPDATE) s;
        EXIT WHEN last IS NULL;
        UPDATE sessions s SET no = c.numbered + p.place
        FROM event_log_copied c, unnest(page) WITH ORDINALITY AS p (id, place) WHERE s.id = p.id;
        UPDATE event_log_copied SET numbered = numbered + cardinality(page);
        after := last;
        COMMIT;
    END LOOP;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION event_log_mirror() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
BEGIN
    -- The writer holds the lock of the session, as the copy does: one of them is first.
    SELECT s.no INTO number FROM sessions s WHERE s.id = NEW.session_id;
    IF EXISTS (SELECT FROM event_log_copied c WHERE number <= c.through OR number > c.upto) THEN
        PERFORM event_log_add(number, NEW.seq, NEW.at, NEW.run_id, NEW.conversation_id, NEW.type, NEW.data::text);
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER events_mirror AFTER INSERT ON events FOR EACH ROW EXECUTE FUNCTION event_log_mirror();

-- event_log_copy copies the events of about 50,000 positions at a time, each batch in a separate
-- transaction under the locks of its sessions. After an interruption it continues with the session
-- after the last copied one.
-- +goose StatementBegin
CREATE PROCEDURE event_log_copy() LANGUAGE plpgsql AS $$
DECLARE
    copied event_log_copied;
    numbers bigint[];
BEGIN
    LOOP
        SELECT * INTO copied FROM event_log_copied;
        SELECT array_agg(b.no) INTO numbers FROM (
            SELECT a.no, sum(a.last_seq) OVER (ORDER BY a.no ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
            FROM (
                SELECT s.no, s.last_seq FROM sessions s
                WHERE s.no > copied.through AND s.no <= copied.upto ORDER BY s.no LIMIT 1000
            ) a
        ) b WHERE b.before IS NULL OR b.before < 50000;
        EXIT WHEN numbers IS NULL;

        PERFORM FROM sessions s WHERE s.no = ANY(numbers) ORDER BY s.id FOR NO KEY UPDATE;
        UPDATE runs r SET no = n.no
        FROM (
            SELECT m.id, (SELECT coalesce(max(o.no), 0) FROM runs o WHERE o.session_id = m.session_id)
                + row_number() OVER (PARTITION BY m.session_id ORDER BY m.began_seq, m.started_at, m.id) AS no
            FROM runs m JOIN sessions s ON s.id = m.session_id WHERE s.no = ANY(numbers) AND m.no IS NULL
        ) n
        WHERE r.id = n.id;
        INSERT INTO event_conversations (session_no, no, id)
        SELECT f.no, 1 + row_number() OVER (PARTITION BY f.no ORDER BY f.first_seq), f.conversation_id
        FROM (
            SELECT s.no, e.conversation_id, min(e.seq) AS first_seq
            FROM sessions s JOIN events e ON e.session_id = s.id
            WHERE s.no = ANY(numbers) AND e.conversation_id NOT IN ('', 'main') GROUP BY s.no, e.conversation_id
        ) f;
        INSERT INTO event_log (session_no, seq, at, run_no, conversation_no, type, data)
        SELECT s.no, e.seq, e.at, coalesce(r.no, 0),
            CASE e.conversation_id WHEN '' THEN 0 WHEN 'main' THEN 1 ELSE v.no END, e.type, e.data::text
        FROM sessions s
        JOIN events e ON e.session_id = s.id
        LEFT JOIN runs r ON r.id = e.run_id
        LEFT JOIN event_conversations v ON v.session_no = s.no AND v.id = e.conversation_id
        WHERE s.no = ANY(numbers) ORDER BY s.no, e.seq;
        UPDATE event_log_copied SET through = (SELECT max(n) FROM unnest(numbers) n);
        COMMIT;
    END LOOP;
END $$;
-- +goose StatementEnd
