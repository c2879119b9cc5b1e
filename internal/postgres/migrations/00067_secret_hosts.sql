-- +goose Up

-- The hosts that a secret may be sent to, as specified by clients. Empty: the default of its
-- provider.
ALTER TABLE secrets ADD COLUMN hosts text[] NOT NULL DEFAULT '{}';

-- Values of replaced and deleted secrets, encrypted as before. Sandboxes may still know them, so
-- they stay masked.
CREATE TABLE replaced_secrets (
    id          bigint      GENERATED ALWAYS AS IDENTITY,
    name        text        NOT NULL,
    sealed      bytea       NOT NULL,
    replaced_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT replaced_secrets_pkey PRIMARY KEY (id)
);

CREATE INDEX replaced_secrets_name ON replaced_secrets (name, id DESC);
