-- +goose Up

-- Which key of the installation the token of a sandbox's runner is derived from, so that
-- it stays the same when the key is replaced. Null: a release without key ids made it.
ALTER TABLE sandboxes ADD COLUMN link_key text;
