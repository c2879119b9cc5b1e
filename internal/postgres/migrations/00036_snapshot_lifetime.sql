-- +goose Up

-- Providers delete a snapshot at the end of its lifetime, so that a snapshot lost in a crash is
-- deleted eventually. A snapshot that a hibernated session needs is copied before it expires.
ALTER TABLE snapshots
    ADD COLUMN expires_at  timestamptz, -- null: never
    ADD COLUMN renew_after timestamptz NOT NULL DEFAULT now();
CREATE INDEX snapshots_expiring ON snapshots (expires_at) WHERE unneeded_at IS NULL AND deleted_at IS NULL;
