-- +goose Up

-- Encrypted by the application: the database never sees a plaintext secret.
CREATE TABLE secrets (
    name       text        NOT NULL,
    sealed     bytea       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT secrets_pkey PRIMARY KEY (name)
);
