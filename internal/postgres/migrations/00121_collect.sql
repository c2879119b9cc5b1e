-- +goose Up

-- Prompts with mode collect are joined: the agent gets them as one prompt, after the prompt that
-- joined_to names. Until collect_until more prompts may join, and no run claims them. The column is
-- equal in all joined prompts.
ALTER TABLE prompts ADD COLUMN joined_to text NOT NULL DEFAULT '', ADD COLUMN collect_until timestamptz;
