-- +goose Up

-- Bounds on a program that impersonates a runner: the transcript bytes replaced by newer versions
-- within one turn, and the number of segments that left a gap. turn is the id of the run that both
-- are counted for; empty for data stored outside of a turn.
ALTER TABLE transcript_totals
    ADD COLUMN turn text NOT NULL DEFAULT '',
    ADD COLUMN replaced bigint NOT NULL DEFAULT 0,
    ADD COLUMN gaps integer NOT NULL DEFAULT 0;
