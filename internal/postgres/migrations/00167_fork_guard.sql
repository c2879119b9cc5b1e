-- +goose Up

-- A worker of a release that does not know forks starts the agent of one without its memory. Programs that know them say so with
-- every connection; others cannot take a run of a fork, whatever they try: their attempt is repeated until a worker that can has it.
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
