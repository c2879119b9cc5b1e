-- +goose Up

-- Health checks write to this table to verify that the database accepts writes.
CREATE TABLE write_probe (
    single boolean     NOT NULL DEFAULT true,
    at     timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT write_probe_pkey PRIMARY KEY (single),
    CONSTRAINT write_probe_single CHECK (single)
);
INSERT INTO write_probe DEFAULT VALUES;
