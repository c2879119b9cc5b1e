-- +goose Up

-- The bytes of data, so that a page can be cut without reading what is not in it.
-- NULL in events of an earlier version.
ALTER TABLE events ADD COLUMN size integer;
