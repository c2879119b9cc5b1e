-- +goose Up

-- Periods in which workers could not reach Postgres or Temporal. Explanations mention them, because
-- a turn delayed by an outage may have no other trace of it.
CREATE TABLE outages (
    id      bigint GENERATED ALWAYS AS IDENTITY,
    part    text        NOT NULL CHECK (part IN ('database', 'temporal')),
    since   timestamptz NOT NULL,
    until   timestamptz NOT NULL,
    CONSTRAINT outages_pkey PRIMARY KEY (id),
    CONSTRAINT outages_order CHECK (until >= since)
);
CREATE INDEX outages_until ON outages (until);
