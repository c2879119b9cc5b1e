-- +goose Up
-- The size of a block in bytes, so that a page of them can end by bytes without reading them. Blocks of an
-- earlier version have none until they change.
ALTER TABLE blocks ADD COLUMN size integer;
CREATE INDEX blocks_position ON blocks (session_id, position);

-- +goose Down
DROP INDEX blocks_position;
ALTER TABLE blocks DROP COLUMN size;
