-- +goose Up

-- The files and the diff of each bundle, readable without its sandbox. The epoch of a workspace
-- counts its bundles. A file has the epoch in which it was last written, and a replaced version is
-- kept for the bundles that contain it.
ALTER TABLE workspaces
    ADD COLUMN epoch      bigint NOT NULL DEFAULT 0,
    ADD COLUMN diff_epoch bigint NOT NULL DEFAULT 0,
    ADD COLUMN kept_epoch bigint NOT NULL DEFAULT 0; -- bundles of earlier epochs are incomplete
ALTER TABLE workspace_files ADD COLUMN epoch bigint NOT NULL DEFAULT 0;

CREATE TABLE earlier_files (
    session_id  text             NOT NULL,
    path        text COLLATE "C" NOT NULL,
    from_epoch  bigint           NOT NULL,
    until_epoch bigint           NOT NULL,
    size        bigint           NOT NULL,
    sha256      text             NOT NULL,
    mode        integer          NOT NULL,
    modified_at timestamptz      NOT NULL,
    content     bytea,
    unsaved     text             NOT NULL,
    CONSTRAINT earlier_files_pkey PRIMARY KEY (session_id, path, from_epoch),
    CONSTRAINT earlier_files_session FOREIGN KEY (session_id) REFERENCES sessions (id) ON DELETE CASCADE,
    CONSTRAINT earlier_files_content CHECK ((content IS NOT NULL) = (unsaved = ''))
);
ALTER TABLE earlier_files ALTER COLUMN content SET STORAGE EXTERNAL;

CREATE TABLE earlier_diffs (
    session_id  text   NOT NULL,
    from_epoch  bigint NOT NULL,
    until_epoch bigint NOT NULL,
    diff        json   NOT NULL,
    patch       bytea,
    CONSTRAINT earlier_diffs_pkey PRIMARY KEY (session_id, from_epoch),
    CONSTRAINT earlier_diffs_session FOREIGN KEY (session_id) REFERENCES sessions (id) ON DELETE CASCADE
);
ALTER TABLE earlier_diffs ALTER COLUMN patch SET STORAGE EXTERNAL;

-- files_epoch is null for bundles without files and for those of earlier releases. A bundle copied
-- to a fork has the files of the bundle files_of, until that bundle's session is purged.
ALTER TABLE bundles
    ADD COLUMN files_epoch bigint,
    ADD COLUMN files_of    text NOT NULL DEFAULT '';
CREATE INDEX bundles_files_of ON bundles (files_of) WHERE files_of <> '';

-- These are triggers because workers of earlier releases write files too.
-- +goose StatementBegin
CREATE FUNCTION workspace_file_epoch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.epoch := coalesce((SELECT w.epoch FROM workspaces w WHERE w.session_id = NEW.session_id), 0);
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER workspace_files_epoch BEFORE INSERT OR UPDATE ON workspace_files FOR EACH ROW EXECUTE FUNCTION workspace_file_epoch();

-- A session keeps at most 64 MiB of content and 100,000 files. A workspace that exceeds the second
-- limit keeps no files for its bundles up to then.
-- +goose StatementBegin
CREATE FUNCTION workspace_files_keep() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    kept_session text;
    kept         bigint;
    kept_bytes   bigint;
BEGIN
    FOR kept_session IN
        SELECT DISTINCT o.session_id FROM was o JOIN workspaces w ON w.session_id = o.session_id WHERE o.epoch < w.epoch AND o.deleted_at IS NULL
    LOOP
        SELECT count(*), coalesce(sum(e.size) FILTER (WHERE e.unsaved = ''), 0) INTO kept, kept_bytes FROM earlier_files e WHERE e.session_id = kept_session;
        IF kept + (SELECT count(*) FROM was) > 100000 THEN
            DELETE FROM earlier_files e WHERE e.session_id = kept_session AND e.until_epoch >= 0;
            UPDATE workspaces w SET kept_epoch = w.epoch WHERE w.session_id = kept_session;
            CONTINUE;
        END IF;
        INSERT INTO earlier_files (session_id, path, from_epoch, until_epoch, size, sha256, mode, modified_at, content, unsaved)
        SELECT o.session_id, o.path, o.epoch, w.epoch - 1, o.size, o.sha256, o.mode, o.modified_at,
            CASE WHEN o.fits THEN o.content END, CASE WHEN o.fits OR o.unsaved <> '' THEN o.unsaved ELSE 'session_full' END
        FROM (
            SELECT x.*, x.unsaved = '' AND kept_bytes + sum(CASE x.unsaved WHEN '' THEN x.size ELSE 0 END) OVER (ORDER BY x.path) <= 64 * 1024 * 1024 AS fits
            FROM was x JOIN workspaces v ON v.session_id = x.session_id
            WHERE x.session_id = kept_session AND x.epoch < v.epoch AND x.deleted_at IS NULL
        ) o JOIN workspaces w ON w.session_id = o.session_id;
    END LOOP;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER workspace_files_keep AFTER UPDATE ON workspace_files REFERENCING OLD TABLE AS was FOR EACH STATEMENT EXECUTE FUNCTION workspace_files_keep();

-- +goose StatementBegin
CREATE FUNCTION workspace_diff_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.diff IS NOT NULL AND OLD.diff_epoch < OLD.epoch THEN
        INSERT INTO earlier_diffs (session_id, from_epoch, until_epoch, diff, patch)
        VALUES (OLD.session_id, OLD.diff_epoch, OLD.epoch - 1, OLD.diff, OLD.patch);
    END IF;
    NEW.diff_epoch := OLD.epoch;
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER workspaces_diff_keep BEFORE UPDATE ON workspaces FOR EACH ROW
    WHEN (OLD.diff_key IS DISTINCT FROM NEW.diff_key) EXECUTE FUNCTION workspace_diff_keep();
