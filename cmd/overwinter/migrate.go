package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"
)

// MigrateCmd manages the database's schema.
type MigrateCmd struct {
	Up     MigrateUpCmd     `cmd:"" help:"Migrate the database to this build's schema."`
	Status MigrateStatusCmd `cmd:"" help:"List the migrations and when each one was applied."`
}

// MigrateUpCmd applies what is missing.
type MigrateUpCmd struct{ databaseFlags }

// Run returns when the schema is up to date, even if another process has updated it.
func (c *MigrateUpCmd) Run(ctx context.Context, logger *slog.Logger) error {
	return migrateUp(ctx, c.DatabaseURL, logger)
}

// MigrateStatusCmd changes nothing.
type MigrateStatusCmd struct{ databaseFlags }

// Run prints one line for each migration.
func (c *MigrateStatusCmd) Run(ctx context.Context, logger *slog.Logger, s streams) error {
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
