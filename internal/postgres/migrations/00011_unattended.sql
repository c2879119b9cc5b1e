-- +goose Up

-- What the relay and the reconciler look at, without reading a session that rests: sessions in a state that only
-- a workflow leads out of. A lazy session that waits for its first prompt rests.
CREATE INDEX sessions_unloaded ON sessions (id)
    WHERE NOT loaded AND (status IN ('running', 'hibernating', 'restoring') OR status = 'initializing' AND NOT lazy);
CREATE INDEX sessions_moving ON sessions (id)
    WHERE loaded AND (status IN ('running', 'hibernating', 'restoring', 'error') OR status = 'initializing' AND NOT lazy);
DROP INDEX sessions_left_open;
