-- +goose Up

-- When the repository of a session was complete in a sandbox. Other programs run there from then on, so
-- that no credentials are sent into it any more.
ALTER TABLE sandboxes ADD COLUMN cloned_at timestamptz;
