-- +goose Up
-- The size of a block in bytes, which limits a page of blocks by bytes without reading them. NULL
-- in blocks of an earlier version until they change.
ALTER TABLE blocks ADD COLUMN size integer;
CREATE INDEX blocks_position ON blocks (session_id, position);

-- +goose Down
DROP INDEX blocks_position;
ALTER TABLE blocks DROP COLUMN size;
