-- +goose Up

-- Providers delete a snapshot when its lifetime is over, so that one that a crash hid
-- does not stay for ever. One that a sleeping session needs is copied before.
ALTER TABLE snapshots
    ADD COLUMN expires_at  timestamptz, -- null: never
    ADD COLUMN renew_after timestamptz NOT NULL DEFAULT now();
CREATE INDEX snapshots_expiring ON snapshots (expires_at) WHERE unneeded_at IS NULL AND deleted_at IS NULL;
