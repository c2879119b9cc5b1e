-- +goose Up

-- Whether the workspace settings of the session were changed after the sandbox was reserved. Its
-- clone and setup then used earlier settings, and a recovery uses another sandbox.
ALTER TABLE sandboxes ADD COLUMN workspace_changed boolean NOT NULL DEFAULT false;
