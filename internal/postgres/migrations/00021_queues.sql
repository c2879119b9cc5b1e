-- +goose Up

-- From this migration on, task queue names contain the installation's id. An existing installation
-- may have open workflows on the earlier queues, so workers also poll those until no workflow is
-- left, and for at least a day, during which apis of the previous release may still start some.
ALTER TABLE installation ADD COLUMN legacy_queues_since timestamptz;
UPDATE installation SET legacy_queues_since = now();
