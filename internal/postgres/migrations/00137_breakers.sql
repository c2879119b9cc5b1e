-- +goose Up

-- Circuit breakers of sandbox starts, shared by all workers: one for each provider and agent whose
-- sandboxes recently failed to start. A successful start deletes the row.
CREATE TABLE breakers (
    provider    text        NOT NULL,
    agent       text        NOT NULL,
    failures    integer     NOT NULL,           -- consecutive
    trials      integer     NOT NULL DEFAULT 0, -- failed trials since it opened
    failed_at   timestamptz NOT NULL,
    failed_by   text        NOT NULL,           -- a hash of the session whose start failed last
    reason      text        NOT NULL,
    opened_at   timestamptz,                    -- null while it is closed
    retry_at    timestamptz,                    -- when the next trial may begin
    trial_by    text        NOT NULL DEFAULT '', -- a hash of the session whose start is the trial
    trial_until timestamptz,
    PRIMARY KEY (provider, agent)
);
