-- +goose Up

-- From this migration on, names of task queues contain the installation's id. An existing installation
-- may have open workflows on the earlier queues: workers also poll these until there are none, and for
-- at least a day, in which apis of the previous release may still start some.
ALTER TABLE installation ADD COLUMN legacy_queues_since timestamptz;
UPDATE installation SET legacy_queues_since = now();
