-- +goose Up

-- The number of sessions by status and agent, stored as differences: every change of a session adds
-- one or two rows, and the counts are their sums. No two transactions write the same row, and
-- counting does not read the sessions. The reconciler merges the rows.
CREATE TABLE session_counts (
    status text   NOT NULL,
    agent  text   NOT NULL,
    n      bigint NOT NULL
);

-- +goose StatementBegin
CREATE FUNCTION session_counted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO session_counts (status, agent, n) VALUES (OLD.status, OLD.agent, -1);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO session_counts (status, agent, n) VALUES (NEW.status, NEW.agent, 1);
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER session_counted AFTER INSERT OR DELETE OR UPDATE OF status ON sessions
    FOR EACH ROW EXECUTE FUNCTION session_counted();

-- The lock taken by CREATE TRIGGER blocks writers until this transaction commits.
INSERT INTO session_counts (status, agent, n) SELECT status, agent, count(*) FROM sessions GROUP BY status, agent;
