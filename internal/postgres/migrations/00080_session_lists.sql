-- +goose Up

-- Facets are the values by which lists filter sessions: the status, the agent, and each string,
-- number and boolean at the top level of the metadata. A facet is a digest, so that index entries
-- are small regardless of the value; listing.go computes the same digests. A NULL status or agent
-- is omitted. Metadata with an unpaired surrogate, which json can hold but text cannot, has no
-- facets. The function calls only functions of pg_catalog, because restoring a dump builds an index
-- with it.
-- +goose StatementBegin
CREATE FUNCTION session_facets(status text, agent text, metadata json) RETURNS uuid[]
LANGUAGE plpgsql IMMUTABLE COST 10000 AS $$
DECLARE
    facets uuid[] := '{}';
    m record;
BEGIN
    IF status IS NOT NULL THEN
        facets := facets || encode(substring(sha256(convert_to('status:' || status, 'UTF8')) FOR 16), 'hex')::uuid;
    END IF;
    IF agent IS NOT NULL THEN
        facets := facets || encode(substring(sha256(convert_to('agent:' || agent, 'UTF8')) FOR 16), 'hex')::uuid;
    END IF;
    FOR m IN SELECT e.key, e.value #>> '{}' AS value FROM json_each(metadata) e WHERE json_typeof(e.value) IN ('string', 'number', 'boolean') LOOP
        facets := facets || encode(substring(sha256(convert_to('metadata:' || length(m.key) || ':' || m.key || ':' || m.value, 'UTF8')) FOR 16), 'hex')::uuid;
    END LOOP;
    RETURN facets;
EXCEPTION WHEN data_exception THEN
    RETURN facets;
END $$;
-- +goose StatementEnd

-- The metadata of sessions as facets, with the sessions of each facet in list order.
CREATE TABLE session_labels (
    label      uuid        NOT NULL,
    created_at timestamptz NOT NULL, -- of the session
    session_id text        NOT NULL,
    CONSTRAINT session_labels_pkey PRIMARY KEY (label, created_at, session_id)
);

-- A sorted copy of sessions.last_activity_at. With an index on sessions, no update of the column
-- would be in place (HOT): each would add an entry to every other index of the table.
CREATE TABLE session_activity (
    session_id text        NOT NULL,
    at         timestamptz NOT NULL,
    CONSTRAINT session_activity_pkey PRIMARY KEY (session_id)
);
CREATE INDEX session_activity_order ON session_activity (at, session_id);

-- Triggers maintain both tables, so that writes of processes of the previous release are included
-- during an upgrade.
-- +goose StatementBegin
CREATE FUNCTION session_listed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        DELETE FROM session_labels
        WHERE label = ANY (session_facets(NULL, NULL, OLD.metadata)) AND created_at = OLD.created_at AND session_id = OLD.id;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO session_labels (label, created_at, session_id)
        SELECT DISTINCT f.label, NEW.created_at, NEW.id FROM unnest(session_facets(NULL, NULL, NEW.metadata)) AS f (label)
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION session_active() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM session_activity WHERE session_id = OLD.id;
    ELSE
        INSERT INTO session_activity (session_id, at) VALUES (NEW.id, NEW.last_activity_at)
        ON CONFLICT (session_id) DO UPDATE SET at = excluded.at;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER sessions_list_labels AFTER INSERT OR DELETE ON sessions
    FOR EACH ROW EXECUTE FUNCTION session_listed();
CREATE TRIGGER sessions_change_labels AFTER UPDATE OF metadata ON sessions
    FOR EACH ROW WHEN (NEW.metadata::text <> OLD.metadata::text) EXECUTE FUNCTION session_listed();
CREATE TRIGGER sessions_list_activity AFTER INSERT OR DELETE ON sessions
    FOR EACH ROW EXECUTE FUNCTION session_active();
CREATE TRIGGER sessions_change_activity AFTER UPDATE OF last_activity_at ON sessions
    FOR EACH ROW WHEN (NEW.last_activity_at <> OLD.last_activity_at) EXECUTE FUNCTION session_active();
