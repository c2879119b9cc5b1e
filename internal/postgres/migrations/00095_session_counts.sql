-- +goose Up

-- How many sessions there are by status and agent, as differences: every change of a session adds a row, or two. Their sums are
-- the counts, so that no two transactions write the same row and no count reads the sessions. The reconciler adds the rows up.
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

-- The trigger's lock keeps writers out until this is committed.
INSERT INTO session_counts (status, agent, n) SELECT status, agent, count(*) FROM sessions GROUP BY status, agent;
