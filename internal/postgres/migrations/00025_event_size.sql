-- +goose Up

-- The size of data in bytes, which limits a page without reading more events than it contains. NULL
-- in events of an earlier version.
ALTER TABLE events ADD COLUMN size integer;
