-- +goose Up

-- Compaction deletes text deltas from the log. compact_seq is the position that it has processed,
-- dropped_seq the newest event that it has deleted. Processes of the previous release do not read
-- these columns.
ALTER TABLE sessions ADD COLUMN compact_seq bigint NOT NULL DEFAULT 0, ADD COLUMN dropped_seq bigint NOT NULL DEFAULT 0;
