-- +goose Up

-- The previous agent of a session that was forked with another agent, which has none of its memory.
-- Empty if the agent is the same.
ALTER TABLE session_forks ADD COLUMN handed_from text NOT NULL DEFAULT '';

-- A worker of a release without forks would restore such a fork without installing its agent, which
-- the snapshot does not contain.
-- +goose StatementBegin
CREATE FUNCTION refuse_hand_off() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM session_forks f WHERE f.session_id = NEW.session_id AND f.handed_from <> '') THEN
        RAISE EXCEPTION 'session % was forked with another agent, and this program is of a release that does not install it', NEW.session_id
            USING ERRCODE = '57P03', HINT = 'Upgrade all workers.';
    END IF;
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER sandboxes_handed_over BEFORE INSERT ON sandboxes FOR EACH ROW
    WHEN (coalesce(current_setting('overwinter.forks', true), '') <> 'known')
    EXECUTE FUNCTION refuse_hand_off();
