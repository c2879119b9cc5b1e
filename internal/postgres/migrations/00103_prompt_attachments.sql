-- +goose Up

-- The attachments of a prompt: an array of their ids, names, media types and sizes. Their content is in the table attachments.
ALTER TABLE prompts ADD COLUMN attachments jsonb NOT NULL DEFAULT '[]';
