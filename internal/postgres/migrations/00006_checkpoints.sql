-- +goose Up

-- A bundle of a sandbox that continues to run: its generation gets another one
-- when the session leaves the sandbox.
ALTER TABLE bundles ADD COLUMN checkpoint boolean NOT NULL DEFAULT false;
