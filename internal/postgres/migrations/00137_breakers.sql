-- +goose Up

-- The circuit breakers of starts, which all workers share: one for each provider and agent whose sandboxes have failed to start
-- lately. A start that succeeds deletes the row.
CREATE TABLE breakers (
    provider    text        NOT NULL,
    agent       text        NOT NULL,
    failures    integer     NOT NULL,           -- in a row
    trials      integer     NOT NULL DEFAULT 0, -- that have failed since it opened
    failed_at   timestamptz NOT NULL,
    failed_by   text        NOT NULL,           -- a hash of the session whose start was the last to fail
    reason      text        NOT NULL,
    opened_at   timestamptz,                    -- null while it is closed
    retry_at    timestamptz,                    -- when the next trial may begin
    trial_by    text        NOT NULL DEFAULT '', -- a hash of the session whose start is tried
    trial_until timestamptz,
    PRIMARY KEY (provider, agent)
);
