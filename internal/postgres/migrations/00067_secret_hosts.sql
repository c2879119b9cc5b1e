-- +goose Up

-- The hosts that a secret may be sent to, as clients state them; empty for the default of its provider.
ALTER TABLE secrets ADD COLUMN hosts text[] NOT NULL DEFAULT '{}';

-- Values of secrets that were replaced or deleted, sealed as they were. Sandboxes may still know them, so they
-- stay masked.
CREATE TABLE replaced_secrets (
    id          bigint      GENERATED ALWAYS AS IDENTITY,
    name        text        NOT NULL,
    sealed      bytea       NOT NULL,
    replaced_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT replaced_secrets_pkey PRIMARY KEY (id)
);

CREATE INDEX replaced_secrets_name ON replaced_secrets (name, id DESC);
