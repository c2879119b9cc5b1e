package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"text/tabwriter"

	"github.com/overwinter-dev/overwinter/internal/devstack"
	"github.com/overwinter-dev/overwinter/internal/loopback"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/secret"
)

// doctorCmd checks the requirements of dev. It has the flags of dev, so that it checks what dev
// would use with the same flags.
type doctorCmd struct {
	devCmd `embed:""`
	JSON   bool `name:"json" help:"Print the findings as JSON."`
}

// errMissing makes the program exit with 1.
var errMissing = errors.New("something is missing that overwinter dev needs; see above")

// Run prints the findings and their remedies, and fails if dev would fail. It changes nothing.
func (c *doctorCmd) Run(ctx context.Context, logger *slog.Logger, s streams, all *commands) error {
	config, err := c.config(logger, s, all)
	if err != nil {
		return err
	}
	config.LoopbackURLs = func(ctx context.Context, databaseURL, secretKey string) ([]devstack.LoopbackURL, error) {
		return storedLoopbackURLs(ctx, logger, databaseURL, secretKey)
	}
	findings, err := devstack.Examine(ctx, config)
	if err != nil {
		return usageError{err.Error()}
	}
	if c.JSON {
		encoder := json.NewEncoder(s.stdout)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(findings)
	} else {
		err = printFindings(s, findings)
	}
	if err != nil {
		return fmt.Errorf("print findings: %w", err)
	}
	for _, f := range findings {
		if f.Verdict == devstack.Missing {
			return errMissing
		}
	}
	return nil
}

// storedLoopbackURLs searches the stored secrets and the newest versions of profiles.
func storedLoopbackURLs(ctx context.Context, logger *slog.Logger, databaseURL, secretKey string) ([]devstack.LoopbackURL, error) {
	keyring, err := newKeyring(secret.NewValue(secretKey), nil)
	if err != nil {
		return nil, err
	}
	db, err := postgres.Open(ctx, databaseURL, postgres.Options{Logger: logger})
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if err := db.SchemaCheck(ctx); err != nil {
		return nil, err
	}
	sealed, err := db.SecretsSealed(ctx)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for name := range sealed {
		value, err := keyring.Open(name, sealed[name].Sealed)
		if err != nil { // agents do not receive it either
			logger.WarnContext(ctx, "could not decrypt secret", slog.String("secret", name), slog.Any("error", err))
			continue
		}
		values[name] = value.Reveal()
	}
	found := holders("secret", values)
	for cursor := ""; ; {
		profiles, next, err := db.ProfileList(ctx, 0, cursor)
		if err != nil {
			return nil, err
		}
		for _, p := range profiles {
			found = append(found, holders("profile "+p.Name+":", p.Spec.Environment)...)
		}
		if cursor = next; next == "" {
			return found, nil
		}
	}
}

func holders(what string, variables map[string]string) []devstack.LoopbackURL {
	var found []devstack.LoopbackURL
	for _, u := range loopback.URLs(variables) {
		found = append(found, devstack.LoopbackURL{Holder: what + " " + u.Variable, Address: u.Address, Port: u.Port})
	}
	return found
}

// printFindings prints a table, and the remedies below each finding.
func printFindings(s streams, findings []devstack.Finding) error {
	table := tabwriter.NewWriter(s.stdout, 0, 0, 2, ' ', 0)
	for _, f := range findings {
		lines := []string{fmt.Sprintf("%s\t%s\t%s", f.Verdict, f.Check, f.Detail)}
		for _, remedy := range f.Remedies {
			lines = append(lines, "\t\t  "+remedy)
		}
		if _, err := fmt.Fprintln(table, strings.Join(lines, "\n")); err != nil {
			return err
		}
	}
	return table.Flush()
}
