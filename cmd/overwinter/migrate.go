package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"
)

// migrateCmd manages the database's schema.
type migrateCmd struct {
	Up     migrateUpCmd     `cmd:"" help:"Migrate the database to this build's schema."`
	Status migrateStatusCmd `cmd:"" help:"List the migrations and when each one was applied."`
}

// migrateUpCmd applies the pending migrations.
type migrateUpCmd struct{ databaseFlags }

// Run returns when the schema is up to date, even if another process has updated it.
func (c *migrateUpCmd) Run(ctx context.Context, logger *slog.Logger) error {
	return migrateUp(ctx, c.DatabaseURL, logger)
}

// migrateStatusCmd changes nothing.
type migrateStatusCmd struct{ databaseFlags }

// Run prints one line for each migration.
func (c *migrateStatusCmd) Run(ctx context.Context, logger *slog.Logger, s streams) error {
	db, err := c.open(ctx, logger)
	if err != nil {
		return err
	}
	defer db.Close()
	migrations, err := db.MigrationStatus(ctx)
	if err != nil {
		return err
	}
	rows := []string{"VERSION\tNAME\tAPPLIED"}
	for _, m := range migrations {
		applied := "pending"
		if !m.AppliedAt.IsZero() {
			applied = m.AppliedAt.Format(time.RFC3339)
		}
		rows = append(rows, fmt.Sprintf("%d\t%s\t%s", m.Version, m.Name, applied))
	}
	table := tabwriter.NewWriter(s.stdout, 0, 0, 2, ' ', 0)
	if _, err := fmt.Fprintln(table, strings.Join(rows, "\n")); err != nil {
		return fmt.Errorf("print migrations: %w", err)
	}
	return table.Flush()
}
