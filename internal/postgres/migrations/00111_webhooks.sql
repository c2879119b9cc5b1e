-- +goose Up

-- Endpoints that are notified of lifecycle events. after_n is the position up to which deliveries
-- exist. It is updated in the transaction that writes the deliveries, so that each event has one
-- delivery.
CREATE TABLE webhooks (
    id              text PRIMARY KEY,
    url             text        NOT NULL,
    description     text        NOT NULL DEFAULT '',
    types           text[]      NOT NULL DEFAULT '{}', -- empty: all
    session_id      text        NOT NULL DEFAULT '',
    agent           text        NOT NULL DEFAULT '',
    metadata        jsonb       NOT NULL DEFAULT '{}',
    enabled         boolean     NOT NULL DEFAULT true,
    disabled_reason text        NOT NULL DEFAULT '',
    failing_since   timestamptz,
    sealed          bytea       NOT NULL, -- the secret
    old_sealed      bytea,                -- the previous secret, until rotated_until
    rotated_until   timestamptz,
    after_n         bigint      NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at      timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE webhook_deliveries (
    id         text PRIMARY KEY,
    webhook_id text        NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    n          bigint,               -- of the event; null: a test
    session_no bigint,
    type       text        NOT NULL,
    status     text        NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'delivered', 'failed')),
    reason     text        NOT NULL DEFAULT '',
    tries      integer     NOT NULL DEFAULT 0, -- since it was last requested
    next_at    timestamptz,          -- of the next attempt; null once the delivery has ended
    started_at timestamptz,          -- when its workflow was last started; null: not since it was requested
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at   timestamptz,
    CONSTRAINT webhook_deliveries_once UNIQUE (webhook_id, n)
);
CREATE INDEX webhook_deliveries_list ON webhook_deliveries (webhook_id, id DESC);
CREATE INDEX webhook_deliveries_pending ON webhook_deliveries (webhook_id, next_at) WHERE status = 'pending';
CREATE INDEX webhook_deliveries_session ON webhook_deliveries (session_no);
CREATE INDEX webhook_deliveries_ended ON webhook_deliveries (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE webhook_attempts (
    delivery_id text        NOT NULL REFERENCES webhook_deliveries (id) ON DELETE CASCADE,
    no          integer     NOT NULL,
    at          timestamptz NOT NULL,
    duration_ms bigint      NOT NULL,
    code        integer     NOT NULL, -- 0: no response
    error       text        NOT NULL,
    PRIMARY KEY (delivery_id, no)
);
