-- +goose Up

-- Whether the bundle is of a sandbox that continues to run. The same generation gets another bundle
-- when the session leaves the sandbox.
ALTER TABLE bundles ADD COLUMN checkpoint boolean NOT NULL DEFAULT false;
