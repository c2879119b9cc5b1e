-- +goose Up

-- A bundle that was taken of a sandbox which works on: its generation gets
-- another one when it is left.
ALTER TABLE bundles ADD COLUMN checkpoint boolean NOT NULL DEFAULT false;
