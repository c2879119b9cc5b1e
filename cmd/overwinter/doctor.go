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
)

// DoctorCmd looks at what dev needs. Its flags are those of dev: with the same ones it looks at what dev
// would use.
type DoctorCmd struct {
	DevCmd `embed:""`
	JSON   bool `name:"json" help:"Print the findings as JSON."`
}

// errMissing makes the program end with 1.
var errMissing = errors.New("something is missing that overwinter dev needs; see above")

// Run prints what was found and what helps, and fails if dev would. It changes nothing.
func (c *DoctorCmd) Run(ctx context.Context, logger *slog.Logger, s streams, all *commands) error {
	config, err := c.config(logger, s, all)
	if err != nil {
		return err
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

// printFindings prints a table, and below each finding what helps.
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
