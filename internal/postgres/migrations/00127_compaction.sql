-- +goose Up

-- Compaction drops deltas of texts from the log: compact_seq is how far it has looked, dropped_seq the newest event that it
-- has dropped. Processes of the release before do not read them.
ALTER TABLE sessions ADD COLUMN compact_seq bigint NOT NULL DEFAULT 0, ADD COLUMN dropped_seq bigint NOT NULL DEFAULT 0;
