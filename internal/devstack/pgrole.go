package devstack

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const (
	// adminName is the superuser that initdb creates. Only the supervisor connects as it.
	adminName = "overwinter"
	// roleName is the role of worker, api and migrations: it owns the database and its content, and
	// nothing else. An SQL injection into one of them cannot read files or start programs.
	roleName = "overwinter_app"
	// databaseName is the name of the database.
	databaseName = "overwinter"
)

// createDatabase creates overwinter's role and database if they are missing.
func (s *postgresServer) createDatabase(ctx context.Context) (err error) {
	connection, err := pgx.Connect(ctx, s.adminURL("postgres"))
	if err != nil {
		return fmt.Errorf("connect to Postgres: %w", err)
	}
	defer func() { err = errors.Join(err, connection.Close(ctx)) }()
	var hasRole, hasDatabase, owned bool
	err = connection.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1),
		EXISTS (SELECT FROM pg_database WHERE datname = $2),
		EXISTS (SELECT FROM pg_database WHERE datname = $2 AND pg_get_userbyid(datdba) = $1)`, roleName, databaseName).
		Scan(&hasRole, &hasDatabase, &owned)
	if err != nil {
		return fmt.Errorf("look for role and database: %w", err)
	}
	statement := "CREATE ROLE " + roleName
	if hasRole {
		statement = "ALTER ROLE " + roleName
	}
	// The password is hexadecimal, and a utility statement takes no parameters.
	if _, err := connection.Exec(ctx, statement+" LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD '"+s.password+"'"); err != nil {
		return fmt.Errorf("make the role: %w", err)
	}
	switch {
	case !hasDatabase:
		if _, err := connection.Exec(ctx, "CREATE DATABASE "+databaseName+" OWNER "+roleName); err != nil {
			return fmt.Errorf("make the database: %w", err)
		}
		return nil
	case owned:
		return nil
	default:
		return s.handOver(ctx)
	}
}

// handOver transfers a database that belongs to the superuser, as in earlier versions, to the role.
// The database itself is transferred last, in the same transaction, so that the next start repeats
// an interrupted transfer.
func (s *postgresServer) handOver(ctx context.Context) (err error) {
	connection, err := pgx.Connect(ctx, s.adminURL(databaseName))
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer func() { err = errors.Join(err, connection.Close(ctx)) }()
	// Sequences that belong to a column, and the types of rows and arrays, follow their table.
	_, err = connection.Exec(ctx, `DO $$
		DECLARE statement text;
		BEGIN
			FOR statement IN
				SELECT format('ALTER %s %I.%I OWNER TO `+roleName+`',
					CASE c.relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END,
					n.nspname, c.relname)
				FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
				WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p', 'v', 'm', 'S')
					AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('a', 'i') AND c.relkind = 'S')
				UNION ALL
				SELECT format('ALTER ROUTINE %s OWNER TO `+roleName+`', p.oid::regprocedure)
				FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'public'
				UNION ALL
				SELECT format('ALTER TYPE %I.%I OWNER TO `+roleName+`', n.nspname, t.typname)
				FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE n.nspname = 'public' AND t.typtype IN ('e', 'd')
				UNION ALL SELECT 'ALTER SCHEMA public OWNER TO `+roleName+`'
				UNION ALL SELECT 'ALTER DATABASE `+databaseName+` OWNER TO `+roleName+`'
			LOOP
				EXECUTE statement;
			END LOOP;
		END $$`)
	if err != nil {
		return fmt.Errorf("give the database to its role: %w", err)
	}
	return nil
}
