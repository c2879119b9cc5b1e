-- +goose Up

-- Whether the workspace of the session was changed after the sandbox was reserved: what its clone and its setup have done
-- there is of earlier settings, and a recovery uses another sandbox.
ALTER TABLE sandboxes ADD COLUMN workspace_changed boolean NOT NULL DEFAULT false;
