-- +goose Up

-- When the clone of the session's repository completed in the sandbox. From then on other programs
-- run there, and no credentials are sent to it.
ALTER TABLE sandboxes ADD COLUMN cloned_at timestamptz;
