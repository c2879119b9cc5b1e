-- +goose Up

-- The clients that look at sessions now: a row for each connection, which its api renews. It is not logged, since it means
-- nothing after a crash, and an api stores its clients again when it renews them. Without a foreign key, so that a session that is
-- deleted does not keep the others from being renewed.
CREATE UNLOGGED TABLE presences (
    client     text        PRIMARY KEY,
    session_id text        NOT NULL,
    user_id    text        NOT NULL, -- empty if the client has not said who it is
    name       text        NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50); -- a renewal is an update in place
CREATE INDEX presences_session ON presences (session_id);
