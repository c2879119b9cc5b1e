-- name: ProfileInsert :exec
INSERT INTO profiles (id, name, description, created_at, updated_at) VALUES (@id, @name, @description, @at, @at);

-- name: ProfileVersionInsert :exec
INSERT INTO profile_versions (profile_id, version, spec, created_at) VALUES (@profile_id, @version, @spec, @at);

-- name: ProfileUpdate :one
-- ProfileUpdate creates the next version of a profile; the profile's row is the lock.
UPDATE profiles SET name = @name, description = @description, version = version + 1, updated_at = @at
WHERE id = @id AND deleted_at IS NULL
RETURNING version;

-- name: ProfileGet :one
-- ProfileGet finds a version, or the newest if version is 0. Versions outlive their profile.
SELECT p.id, p.name, p.description, p.version AS newest, p.created_at, p.updated_at, p.deleted_at, v.version, v.spec
FROM profiles p JOIN profile_versions v ON v.profile_id = p.id
WHERE p.id = @id AND v.version = CASE WHEN @version::bigint = 0 THEN p.version ELSE @version END;

-- name: ProfileNewest :one
SELECT version FROM profiles WHERE id = @id;

-- name: ProfileVersions :many
-- ProfileVersions returns the versions of a profile before a given one, newest first, without their
-- content.
SELECT version, created_at FROM profile_versions
WHERE profile_id = @profile_id AND (@before::bigint = 0 OR version < @before)
ORDER BY version DESC LIMIT @max_items;

-- name: ProfileFind :one
-- ProfileFind finds the id of a profile that is not deleted by its name.
SELECT id FROM profiles WHERE name = @name AND deleted_at IS NULL;

-- name: ProfileList :many
SELECT p.id, p.name, p.description, p.version AS newest, p.created_at, p.updated_at, p.deleted_at, v.version, v.spec
FROM profiles p JOIN profile_versions v ON v.profile_id = p.id AND v.version = p.version
WHERE p.deleted_at IS NULL AND (@before_id::text = '' OR p.id < @before_id)
ORDER BY p.id DESC LIMIT @max_items;

-- name: ProfileDelete :execrows
UPDATE profiles SET deleted_at = clock_timestamp() WHERE id = @id AND deleted_at IS NULL;
