-- +goose Up

-- The stored part of each transcript file, updated in the transaction that stores it: an append reads and writes
-- one row, regardless of the age of the session.
CREATE TABLE transcript_positions (
    session_id text    NOT NULL,
    path       text    NOT NULL,
    version    bigint  NOT NULL,
    size       bigint  NOT NULL,               -- bytes that are stored
    segments   bigint  NOT NULL,               -- rows of this version in transcripts
    loose      integer NOT NULL DEFAULT 0,     -- the newest of them, which are not merged yet
    cut        boolean NOT NULL DEFAULT false, -- the file has more bytes, which are beyond a limit
    CONSTRAINT transcript_positions_pkey PRIMARY KEY (session_id, path),
    CONSTRAINT transcript_positions_session FOREIGN KEY (session_id) REFERENCES sessions (id) ON DELETE CASCADE,
    CONSTRAINT transcript_positions_range CHECK (size >= 0 AND segments >= loose AND loose >= 0)
);

-- Totals over all files of a session, and the limits that they have reached.
CREATE TABLE transcript_totals (
    session_id text   NOT NULL,
    files      bigint NOT NULL,
    bytes      bigint NOT NULL,
    exceeded   text[] NOT NULL DEFAULT '{}',
    CONSTRAINT transcript_totals_pkey PRIMARY KEY (session_id),
    CONSTRAINT transcript_totals_session FOREIGN KEY (session_id) REFERENCES sessions (id) ON DELETE CASCADE
);

-- False in rows written by an earlier release, which has no positions. Processes of that release
-- may run during an upgrade; the trigger updates the positions for them.
ALTER TABLE transcripts ADD COLUMN counted boolean NOT NULL DEFAULT false;

-- +goose StatementBegin
CREATE FUNCTION transcript_count() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    old_size bigint;
BEGIN
    SELECT p.size INTO old_size FROM transcript_positions p WHERE p.session_id = NEW.session_id AND p.path = NEW.path;
    INSERT INTO transcript_totals (session_id, files, bytes)
    VALUES (NEW.session_id, 1, NEW.start + NEW.size)
    ON CONFLICT (session_id) DO UPDATE SET
        files = transcript_totals.files + CASE WHEN old_size IS NULL THEN 1 ELSE 0 END,
        bytes = transcript_totals.bytes + NEW.start + NEW.size - coalesce(old_size, 0);
    INSERT INTO transcript_positions AS p (session_id, path, version, size, segments)
    VALUES (NEW.session_id, NEW.path, NEW.version, NEW.start + NEW.size, 1)
    ON CONFLICT (session_id, path) DO UPDATE SET
        version = NEW.version, size = NEW.start + NEW.size, loose = 0,
        segments = CASE WHEN p.version = NEW.version THEN p.segments + 1 ELSE 1 END,
        cut = p.cut AND p.version = NEW.version;
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER transcripts_count AFTER INSERT OR UPDATE OF size ON transcripts
    FOR EACH ROW WHEN (NOT NEW.counted) EXECUTE FUNCTION transcript_count();

INSERT INTO transcript_positions (session_id, path, version, size, segments)
SELECT DISTINCT ON (session_id, path) session_id, path, version, max(start + size), count(*)
FROM transcripts
GROUP BY session_id, path, version
ORDER BY session_id, path, version DESC;

INSERT INTO transcript_totals (session_id, files, bytes)
SELECT session_id, count(*), sum(size) FROM transcript_positions GROUP BY session_id;

-- +goose Down
DROP TRIGGER transcripts_count ON transcripts;
DROP FUNCTION transcript_count;
ALTER TABLE transcripts DROP COLUMN counted;
DROP TABLE transcript_totals;
DROP TABLE transcript_positions;
