-- +goose Up

-- The clients that currently view sessions: one row per connection, renewed by its api. The table
-- is unlogged: after a crash its rows are meaningless, and each api stores its clients again at the
-- next renewal. It has no foreign key, so that a deleted session does not prevent the renewal of
-- other rows.
CREATE UNLOGGED TABLE presences (
    client     text        PRIMARY KEY,
    session_id text        NOT NULL,
    user_id    text        NOT NULL, -- empty if the client has not identified its user
    name       text        NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50); -- a renewal is an in-place (HOT) update
CREATE INDEX presences_session ON presences (session_id);
