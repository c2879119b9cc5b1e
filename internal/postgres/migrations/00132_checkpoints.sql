-- +goose Up

-- When sessions without their own policy save a bundle while they are awake: hibernate (not at
-- all), turn, or a duration. The worker that started last has set it.
ALTER TABLE installation ADD COLUMN checkpoint text NOT NULL DEFAULT 'hibernate';
