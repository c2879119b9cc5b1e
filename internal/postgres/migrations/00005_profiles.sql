-- +goose Up

-- Settings of agents in addition to their defaults. Each change creates a new version. A session
-- keeps its version (sessions.profile is ID@VERSION) until it is assigned another one, even if the
-- profile is deleted.
CREATE TABLE profiles (
    id          text        NOT NULL,
    name        text        NOT NULL,
    description text        NOT NULL,
    version     bigint      NOT NULL DEFAULT 1, -- the newest
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL,
    deleted_at  timestamptz,
    CONSTRAINT profiles_pkey PRIMARY KEY (id),
    CONSTRAINT profiles_version CHECK (version >= 1)
);

CREATE UNIQUE INDEX profiles_name ON profiles (name) WHERE deleted_at IS NULL;

CREATE TABLE profile_versions (
    profile_id text        NOT NULL,
    version    bigint      NOT NULL,
    spec       json        NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT profile_versions_pkey PRIMARY KEY (profile_id, version),
    CONSTRAINT profile_versions_profile FOREIGN KEY (profile_id) REFERENCES profiles (id) ON DELETE CASCADE
);
