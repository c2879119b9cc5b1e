-- +goose Up

-- Stored data of a session's workspace. lineage and seq identify the newest stored report of a
-- runner, so that a repeated change is recognized by its number.
CREATE TABLE workspaces (
    session_id  text        NOT NULL,
    lineage     text        NOT NULL DEFAULT '',
    seq         bigint      NOT NULL DEFAULT 0,
    base        text        NOT NULL DEFAULT '', -- the commit that diffs are taken against
    files       bigint      NOT NULL DEFAULT 0,  -- that are not deleted
    saved_bytes bigint      NOT NULL DEFAULT 0,  -- of content, before compression
    diff        json,                            -- without its patch
    diff_key    text        NOT NULL DEFAULT '', -- identifies the compared states
    patch       bytea,                           -- one zstd frame
    updated_at  timestamptz NOT NULL,
    CONSTRAINT workspaces_pkey PRIMARY KEY (session_id),
    CONSTRAINT workspaces_session FOREIGN KEY (session_id) REFERENCES sessions (id) ON DELETE CASCADE,
    CONSTRAINT workspaces_counts CHECK (files >= 0 AND saved_bytes >= 0)
);
ALTER TABLE workspaces ALTER COLUMN patch SET STORAGE EXTERNAL;

-- Rows of deleted files are kept for a while without content, to show readers when the files were
-- deleted.
CREATE TABLE workspace_files (
    session_id  text             NOT NULL,
    path        text COLLATE "C" NOT NULL,
    size        bigint           NOT NULL,
    sha256      text             NOT NULL, -- empty if it was not read completely
    mode        integer          NOT NULL,
    modified_at timestamptz      NOT NULL,
    content     bytea,                     -- one zstd frame
    unsaved     text             NOT NULL, -- why there is no content
    deleted_at  timestamptz,
    CONSTRAINT workspace_files_pkey PRIMARY KEY (session_id, path),
    CONSTRAINT workspace_files_session FOREIGN KEY (session_id) REFERENCES sessions (id) ON DELETE CASCADE,
    CONSTRAINT workspace_files_path CHECK (path <> '' AND octet_length(path) <= 1024),
    CONSTRAINT workspace_files_size CHECK (size >= 0),
    CONSTRAINT workspace_files_unsaved CHECK (unsaved IN ('', 'too_large', 'session_full', 'unreadable')),
    CONSTRAINT workspace_files_content CHECK ((content IS NOT NULL) = (unsaved = '' AND deleted_at IS NULL))
);
ALTER TABLE workspace_files ALTER COLUMN content SET STORAGE EXTERNAL;

CREATE INDEX workspace_files_deleted ON workspace_files (session_id, deleted_at) WHERE deleted_at IS NOT NULL;
