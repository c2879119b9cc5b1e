-- +goose Up

-- Data of a session stored outside its events: images in tool results. The id is derived from the
-- content. A row holds the whole content, because it is at most 10 MiB, written once and read
-- whole; chunks would only need more statements.
CREATE TABLE attachments (
    session_id text NOT NULL,
    id         text NOT NULL,
    origin     text NOT NULL,
    name       text NOT NULL DEFAULT '',
    media_type text NOT NULL,
    bytes      bigint NOT NULL,
    content    bytea NOT NULL,
    created_at timestamptz NOT NULL,

    CONSTRAINT attachments_pkey PRIMARY KEY (session_id, id),
    CONSTRAINT attachments_session FOREIGN KEY (session_id) REFERENCES sessions (id) ON DELETE CASCADE,
    CONSTRAINT attachments_origin CHECK (origin IN ('result', 'prompt')),
    CONSTRAINT attachments_bytes CHECK (bytes = octet_length(content) AND bytes <= 10485760)
);
-- Images and archives are already compressed.
ALTER TABLE attachments ALTER COLUMN content SET STORAGE EXTERNAL;
