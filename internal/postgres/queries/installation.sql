-- name: InstallationDescribe :exec
UPDATE installation SET sandbox_driver = @driver, sandbox_isolation = @isolation;

-- name: InstallationDescription :one
SELECT sandbox_driver, sandbox_isolation FROM installation;
