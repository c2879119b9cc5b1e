-- +goose Up

-- When the repository of a session was complete in a sandbox. From then on, other programs run there,
-- and no credentials are sent into it.
ALTER TABLE sandboxes ADD COLUMN cloned_at timestamptz;
