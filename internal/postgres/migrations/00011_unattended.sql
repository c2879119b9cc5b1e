-- +goose Up

-- Sessions that the relay and the reconciler read: those in a state that only a workflow can leave.
-- A lazy session that waits for its first prompt is excluded.
CREATE INDEX sessions_unloaded ON sessions (id)
    WHERE NOT loaded AND (status IN ('running', 'hibernating', 'restoring') OR status = 'initializing' AND NOT lazy);
CREATE INDEX sessions_moving ON sessions (id)
    WHERE loaded AND (status IN ('running', 'hibernating', 'restoring', 'error') OR status = 'initializing' AND NOT lazy);
DROP INDEX sessions_left_open;
