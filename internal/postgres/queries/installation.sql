-- name: InstallationDescribe :exec
UPDATE installation SET sandbox_driver = @driver, sandbox_isolation = @isolation;

-- name: InstallationDescription :one
SELECT sandbox_driver, sandbox_isolation FROM installation;

-- name: InstallationLegacyQueues :one
SELECT (legacy_queues_since IS NOT NULL)::boolean AS legacy FROM installation;

-- name: InstallationQueuesDrained :exec
UPDATE installation SET legacy_queues_since = NULL WHERE legacy_queues_since < now() - interval '1 day';

-- name: InstallationBundles :exec
UPDATE installation SET keep_bundles = @keep, checkpoint = @checkpoint;
