-- name: SecretPut :one
INSERT INTO secrets (name, sealed) VALUES (@name, @sealed)
ON CONFLICT (name) DO UPDATE SET sealed = excluded.sealed, updated_at = now()
RETURNING name, created_at, updated_at, (xmax = 0)::boolean AS created;

-- name: SecretsList :many
SELECT name, created_at, updated_at FROM secrets ORDER BY name;

-- name: SecretsCount :one
SELECT count(*) FROM secrets;

-- name: SecretGet :one
SELECT sealed FROM secrets WHERE name = @name;

-- name: SecretDelete :execrows
DELETE FROM secrets WHERE name = @name;

-- name: SecretReseal :execrows
-- SecretReseal changes nothing if the secret has been stored again meanwhile.
UPDATE secrets SET sealed = @sealed WHERE name = @name AND sealed = @was;

-- name: SecretsMark :one
-- SecretsMark changes with every secret that is stored or deleted.
SELECT coalesce(md5(string_agg(name || ' ' || updated_at::text, ',' ORDER BY name)), '')::text FROM secrets;

-- name: SecretsAll :many
SELECT name, sealed FROM secrets ORDER BY name;
