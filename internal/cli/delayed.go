package cli

import (
	"fmt"
	"io"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/problem"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// delayNote reports that a session's start or restore keeps failing for temporary reasons. The
// session retries by itself, so otherwise nothing would be printed in the meantime.
type delayNote struct {
	notes     io.Writer
	sessionID string
	caughtUp  bool
	delay     string // not over, of an event that was stored before
}

// take reads an event.
func (d *delayNote) take(e client.Event) error {
	switch e.Type {
	case client.MarkerCaughtUp:
		d.caughtUp = true
	case client.EventStatus: // it has succeeded or was abandoned
		d.delay = ""
	case client.EventError:
		report, err := decode[client.ErrorData](e)
		if err != nil {
			return err
		}
		switch report.Code {
		case problem.ProvisioningDelayed, problem.RestoringDelayed:
			d.delay = report.Message
		}
	}
	if !d.caughtUp || d.delay == "" {
		return nil
	}
	_, err := fmt.Fprintf(d.notes, "%s\nit is retried until it succeeds; overwinter session stop %s ends it\n",
		terminal.OneLine(d.delay, terminal.ProblemRunes), d.sessionID)
	d.delay = ""
	return err
}
