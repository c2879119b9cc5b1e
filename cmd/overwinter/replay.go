package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/export"
	"github.com/overwinter-dev/overwinter/internal/terminal"
	"github.com/overwinter-dev/overwinter/workflows"
)

// replayCmd replays the workflow of an exported session.
type replayCmd struct {
	File string `arg:"" help:"File that session export has written; - reads standard input."`
}

// Run prints the timeline of the session, and for each run of its workflow whether it replays with
// this build.
func (c *replayCmd) Run(s streams) (err error) {
	in := s.stdin
	if c.File != "-" {
		file, err := os.Open(c.File)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		in = file
	}
	f, err := export.Read(in)
	if err != nil {
		return fmt.Errorf("%s: %w", c.File, err)
	}
	if err := printTimeline(s.stdout, f); err != nil {
		return err
	}
	return replayRuns(s.stdout, f)
}

// moment is a line of the timeline.
type moment struct {
	at   time.Time
	text string
}

// printTimeline writes the transitions and prompts of a session by time, and the other contents of
// the file.
func printTimeline(w io.Writer, f export.File) error {
	h := f.Header
	fmt.Fprintf(w, "%s, exported at %s by %s: %s, agent %s\n", h.SessionID, h.ExportedAt, h.Release, f.Session.Status, f.Session.Agent)
	moments := []moment{{f.Session.CreatedAt.Time, "session created"}}
	for _, p := range f.Prompts {
		moments = append(moments, moment{p.CreatedAt.Time, "prompt " + p.ID + " accepted"})
		if p.StartedAt != nil {
			moments = append(moments, moment{p.StartedAt.Time, "prompt " + p.ID + " started"})
		}
		if p.EndedAt != nil {
			moments = append(moments, moment{p.EndedAt.Time, fmt.Sprintf("prompt %s %s%s", p.ID, p.Status, inBrackets(terminal.OneLine(p.Reason, terminal.LineRunes)))})
		}
	}
	for _, b := range f.Bundles {
		moments = append(moments, moment{b.CreatedAt.Time, fmt.Sprintf("bundle %s of generation %d", b.ID, b.Generation)})
	}
	for _, e := range f.Events {
		var d event.StatusData
		if e.Type == event.TypeStatus && json.Unmarshal(e.Data, &d) == nil {
			moments = append(moments, moment{e.At, fmt.Sprintf("transition %d: %s%s", d.Transition, d.Status, inBrackets(terminal.OneLine(d.Reason, terminal.LineRunes)))})
		}
	}
	slices.SortStableFunc(moments, func(a, b moment) int { return a.at.Compare(b.at) })
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, m := range moments {
		fmt.Fprintf(t, "%s\t%s\n", m.at.UTC().Format(time.RFC3339), m.text) // Flush returns the error
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d events, %d prompts, %d bundles\n", len(f.Events), len(f.Prompts), len(f.Bundles))
	return err
}

// replayRuns replays each run of the workflow. It fails if one does not replay or the file is
// incomplete.
func replayRuns(w io.Writer, f export.File) error {
	failed := 0
	for _, run := range f.Runs {
		verdict := "replays with this build"
		if err := replayRun(run); err != nil {
			failed++
			verdict = "does not replay with this build: " + terminal.OneLine(err.Error(), 1000)
		}
		if _, err := fmt.Fprintf(w, "workflow run %s: %d events, %s\n", run.ID, len(run.Events), verdict); err != nil {
			return err
		}
	}
	switch {
	case failed > 0:
		return fmt.Errorf("%d of %d runs of the workflow do not replay", failed, len(f.Runs))
	case f.End == nil:
		return errors.New("the file is truncated: it has no end record")
	case f.End.HistoryMissing != "":
		return fmt.Errorf("the file does not contain the workflow's history: %s", cmp.Or(f.End.HistoryMissing, "no reason is known"))
	}
	return nil
}

func replayRun(run export.Run) error {
	var h history.History
	for _, raw := range run.Events {
		var e history.HistoryEvent
		if err := (temporalproto.CustomJSONUnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, &e); err != nil {
			return fmt.Errorf("read an event of the history: %w", err)
		}
		h.Events = append(h.Events, &e)
	}
	r, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{DisableRegistrationAliasing: true})
	if err != nil {
		return err
	}
	r.RegisterWorkflowWithOptions(workflows.Session, workflow.RegisterOptions{Name: contract.WorkflowName})
	return r.ReplayWorkflowHistory(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)), &h)
}
