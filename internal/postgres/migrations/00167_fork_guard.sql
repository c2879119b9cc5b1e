-- +goose Up

-- A worker of a release without forks would start a fork's agent without its memory. Programs that
-- support forks declare it on every connection. Other programs cannot take a run of a fork: their
-- attempt is retried until a worker that supports forks gets it.
-- +goose StatementBegin
CREATE FUNCTION refuse_fork() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM session_forks f WHERE f.session_id = NEW.session_id) THEN
        RAISE EXCEPTION 'session % is a fork, and this program is of a release that starts its agent without its memory', NEW.session_id
            USING ERRCODE = '57P03', HINT = 'Upgrade all workers.';
    END IF;
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER runs_of_forks BEFORE INSERT OR UPDATE OF token ON runs FOR EACH ROW
    WHEN (NEW.token <> '' AND coalesce(current_setting('overwinter.forks', true), '') <> 'known')
    EXECUTE FUNCTION refuse_fork();
