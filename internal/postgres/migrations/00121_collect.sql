-- +goose Up

-- Prompts of the mode collect are joined: the agent gets them as one, with the prompt that joined_to names, which comes before them. Until
-- collect_until others may join, and no run gets them; the column is the same in all that are joined.
ALTER TABLE prompts ADD COLUMN joined_to text NOT NULL DEFAULT '', ADD COLUMN collect_until timestamptz;
