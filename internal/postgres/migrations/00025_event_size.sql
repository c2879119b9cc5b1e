-- +goose Up

-- The size of data in bytes, so that a page can be limited without reading more.
-- NULL in events of an earlier version.
ALTER TABLE events ADD COLUMN size integer;
