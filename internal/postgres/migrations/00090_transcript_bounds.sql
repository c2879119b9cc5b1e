-- +goose Up

-- What a program in the place of a runner has done with the transcripts of its session in one turn: the bytes that it has
-- replaced by newer versions, and how often a segment left a gap. turn is the id of the run that both are counted of; empty for
-- what was stored outside of a turn.
ALTER TABLE transcript_totals
    ADD COLUMN turn text NOT NULL DEFAULT '',
    ADD COLUMN replaced bigint NOT NULL DEFAULT 0,
    ADD COLUMN gaps integer NOT NULL DEFAULT 0;
