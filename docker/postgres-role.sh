#!/bin/sh
# Run once by the image of Postgres, when it makes its data directory: the role and database of overwinter.
# The role is no superuser. The superuser loses its password, so that it cannot log in over the network;
# `docker compose exec postgres psql -U postgres` still works.
set -eu
psql -v ON_ERROR_STOP=1 -v password="$POSTGRES_PASSWORD" -U "$POSTGRES_USER" -d postgres <<'END'
CREATE ROLE overwinter LOGIN NOSUPERUSER PASSWORD :'password';
CREATE DATABASE overwinter OWNER overwinter;
ALTER ROLE CURRENT_USER PASSWORD NULL;
END
