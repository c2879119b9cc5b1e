-- +goose Up

-- What health checks write to, to find out whether anything can be written.
CREATE TABLE write_probe (
    single boolean     NOT NULL DEFAULT true,
    at     timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT write_probe_pkey PRIMARY KEY (single),
    CONSTRAINT write_probe_single CHECK (single)
);
INSERT INTO write_probe DEFAULT VALUES;
