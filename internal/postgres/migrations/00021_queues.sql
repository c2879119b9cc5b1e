-- +goose Up

-- Task queues have the installation's id in their names from here on. An installation that is
-- there already may have workflows open on the queues of before: workers poll these as well until
-- none is. They do so for a day at least, in which apis of the release before may still start some.
ALTER TABLE installation ADD COLUMN legacy_queues_since timestamptz;
UPDATE installation SET legacy_queues_since = now();
