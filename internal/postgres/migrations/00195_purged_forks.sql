-- +goose Up

-- The session from which a purged session was forked. Its own forks have a copy of that session's
-- conversation, but their rows in session_forks name only the purged session.
ALTER TABLE purges ADD COLUMN parent_id text NOT NULL DEFAULT '';
CREATE INDEX purges_parent ON purges (parent_id) WHERE parent_id <> '';

-- It is a trigger because API servers and workers of the previous release request purges too.
-- +goose StatementBegin
CREATE FUNCTION purge_parent() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.parent_id := coalesce((SELECT f.parent_id FROM session_forks f WHERE f.session_id = NEW.session_id), '');
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER purges_parent BEFORE INSERT ON purges FOR EACH ROW EXECUTE FUNCTION purge_parent();

UPDATE purges p SET parent_id = f.parent_id FROM session_forks f WHERE f.session_id = p.session_id;
