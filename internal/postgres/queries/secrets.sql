-- name: SecretPut :one
INSERT INTO secrets (name, sealed, hosts) VALUES (@name, @sealed, @hosts::text[])
ON CONFLICT (name) DO UPDATE SET sealed = excluded.sealed, hosts = excluded.hosts, updated_at = now()
RETURNING name, hosts, created_at, updated_at, (xmax = 0)::boolean AS created;

-- name: SecretsList :many
SELECT name, hosts, created_at, updated_at FROM secrets ORDER BY name;

-- name: SecretsCount :one
SELECT count(*) FROM secrets;

-- name: SecretGet :one
SELECT sealed FROM secrets WHERE name = @name;

-- name: SecretsPresent :many
SELECT name FROM secrets WHERE name = ANY(@names::text[]) ORDER BY name;

-- name: SecretReplaced :exec
-- SecretReplaced keeps the current value of a secret before it is replaced or deleted.
INSERT INTO replaced_secrets (name, sealed) SELECT s.name, s.sealed FROM secrets s WHERE s.name = @name FOR UPDATE;

-- name: ReplacedSecretsTrim :exec
-- ReplacedSecretsTrim deletes the oldest values beyond a number per name, and a number in total.
DELETE FROM replaced_secrets WHERE id IN (
    SELECT r.id FROM replaced_secrets r WHERE r.name = @name ORDER BY r.id DESC OFFSET sqlc.arg(max_of_name)::int
) OR id IN (
    SELECT r.id FROM replaced_secrets r ORDER BY r.id DESC OFFSET sqlc.arg(max_items)::int
);

-- name: ReplacedSecrets :many
SELECT id, name, sealed FROM replaced_secrets ORDER BY id;

-- name: ReplacedSecretReseal :exec
UPDATE replaced_secrets SET sealed = @sealed WHERE id = @id;

-- name: SecretDelete :execrows
DELETE FROM secrets WHERE name = @name;

-- name: SecretReseal :execrows
-- SecretReseal changes nothing if the secret has been stored again meanwhile.
UPDATE secrets SET sealed = @sealed WHERE name = @name AND sealed = @was;

-- name: SecretsMark :one
-- SecretsMark returns a value that changes with every change of a row: xmin is the transaction that
-- wrote it. A row of another database may have the same xmin: updated_at tells them apart after a restore.
SELECT concat(
    (SELECT md5(string_agg(s.name || ' ' || s.xmin::text || ' ' || s.updated_at::text, ',' ORDER BY s.name)) FROM secrets s),
    (SELECT ' ' || max(r.id)::text || ' ' || sum(r.xmin::text::bigint)::text FROM replaced_secrets r)
)::text;

-- name: SecretsAll :many
SELECT name, sealed, hosts FROM secrets ORDER BY name;
