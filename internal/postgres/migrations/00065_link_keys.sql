-- +goose Up

-- The installation key that the token of the sandbox's runner is derived from, so that the token
-- stays the same when the key is replaced. NULL: derived by a release without key ids.
ALTER TABLE sandboxes ADD COLUMN link_key text;
