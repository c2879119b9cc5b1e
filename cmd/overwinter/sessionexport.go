package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/export"
)

// sessionExportCmd writes the stored data of a session to a file.
type sessionExportCmd struct {
	sessionArg
	Content bool   `help:"Include the text of prompts and agents, and the data of all events."`
	File    string `placeholder:"FILE" help:"File to write, which must not exist. Default: standard output."`
}

// Run writes the file, which replay reads.
func (c *sessionExportCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.on(ctx, c.sessionArg, func(api *client.Client, id string) (err error) {
		out := s.stdout
		if c.File != "" {
			file, err := os.OpenFile(c.File, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, file.Close()) }()
			out = file
		}
		buffered := bufio.NewWriterSize(out, 64<<10)
		missing, err := exportSession(ctx, api, id, c.Content, buffered)
		if err != nil {
			return err
		}
		if missing != "" {
			fmt.Fprintf(s.stderr, "overwinter: the export does not contain the workflow's history: %s\n", missing)
		}
		return buffered.Flush()
	})
}

// exportSession writes all records. It returns the reason if the history is missing.
func exportSession(ctx context.Context, api *client.Client, id string, content bool, out io.Writer) (missing string, err error) {
	got, err := api.SessionGet(ctx, id)
	if err != nil {
		return "", err
	}
	w, err := export.NewWriter(out, export.Header{
		Format: export.Format, Version: export.Version, Release: release, SessionID: id, ExportedAt: client.Time{Time: time.Now()}, Content: content,
	})
	if err != nil {
		return "", err
	}
	if !content {
		got = export.BareSession(got)
	}
	if err := w.Write(export.KindSession, got); err != nil {
		return "", err
	}
	for _, write := range []func(context.Context, *client.Client, string, bool, *export.Writer) error{exportPrompts, exportBundles, exportEvents} {
		if err := write(ctx, api, id, content, w); err != nil {
			return "", err
		}
	}
	missing, err = exportHistory(ctx, api, id, w)
	if err != nil {
		return "", err
	}
	return missing, w.End(missing)
}

func exportPrompts(ctx context.Context, api *client.Client, id string, content bool, w *export.Writer) error {
	prompts, err := api.PromptList(ctx, id)
	if err != nil {
		return err
	}
	for _, p := range prompts.Items {
		if !content {
			p = export.BarePrompt(p)
		}
		if err := w.Write(export.KindPrompt, p); err != nil {
			return err
		}
	}
	return nil
}

func exportBundles(ctx context.Context, api *client.Client, id string, _ bool, w *export.Writer) error {
	bundles, err := api.BundleList(ctx, id, 0)
	if err != nil {
		return err
	}
	for i := len(bundles.Items) - 1; i >= 0; i-- { // the oldest first
		whole, err := api.BundleGet(ctx, bundles.Items[i].ID) // includes the manifest
		if refused, ok := errors.AsType[*client.Error](err); ok && refused.Status == http.StatusNotFound {
			continue // the bundle was deleted in the meantime
		}
		if err != nil {
			return err
		}
		if err := w.Write(export.KindBundle, whole); err != nil {
			return err
		}
	}
	return nil
}

// exportEvents writes the events up to now.
func exportEvents(ctx context.Context, api *client.Client, id string, content bool, w *export.Writer) error {
	newest, err := api.Position(ctx, id)
	if err != nil || newest == 0 {
		return err
	}
	for e, err := range api.Follow(ctx, id, 0) {
		if err != nil {
			return err
		}
		if e.Marker() {
			if e.Type == "end" || e.Type == "caught_up" {
				return nil
			}
			continue // a gap: older events were deleted
		}
		item := export.Event{Seq: e.Seq, Type: e.Type, At: e.At.Time, RunID: e.RunID, Bytes: len(e.Data), Data: e.Data}
		if !content {
			item = item.Bare()
		}
		if err := w.Write(export.KindEvent, item); err != nil {
			return err
		}
		if e.Seq >= newest {
			return nil
		}
	}
	return errors.New("the event stream ended early")
}

// exportHistory returns the reason if the history cannot be read and is omitted.
func exportHistory(ctx context.Context, api *client.Client, id string, w *export.Writer) (missing string, err error) {
	for cursor := ""; ; {
		page, err := api.HistoryPage(ctx, id, cursor)
		if refused, ok := errors.AsType[*client.Error](err); ok {
			return refused.Error(), nil
		}
		if err != nil {
			return "", err
		}
		for _, e := range page.Items {
			if err := w.Write(export.KindHistory, e); err != nil {
				return "", err
			}
		}
		if page.NextCursor == nil || *page.NextCursor == "" {
			return "", nil
		}
		cursor = *page.NextCursor
	}
}
