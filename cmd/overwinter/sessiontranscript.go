package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"

	"github.com/overwinter-dev/overwinter/client"
)

// sessionTranscriptCmd prints the agent's own transcript files.
type sessionTranscriptCmd struct {
	sessionArg
	Path string `arg:"" optional:"" help:"File to print. Default: all of them, as JSON with their content."`
}

// Run prints JSON in both formats, or the bytes of one file.
func (c *sessionTranscriptCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.on(ctx, c.sessionArg, func(api *client.Client, id string) error {
		if c.Path != "" {
			return printTranscript(s.stdout, api.TranscriptPieces(ctx, id, c.Path))
		}
		return printTranscripts(s.stdout, api.Transcripts(ctx, id))
	})
}

// printTranscript prints a file while it is being read.
func printTranscript(w io.Writer, pieces iter.Seq2[client.TranscriptPiece, error]) error {
	printed := false
	for p, err := range pieces {
		switch {
		case err != nil:
			return err
		case printed && p.Offset == 0:
			return fmt.Errorf("the agent rewrote %s while it was printed; print it again", p.Path)
		}
		printed = true
		if err := printFile(w, p.Data); err != nil {
			return err
		}
	}
	return nil
}

// printTranscripts prints {"files": […]}, and holds one file at a time in memory.
func printTranscripts(w io.Writer, files iter.Seq2[client.TranscriptFile, error]) error {
	const first, others = "{\n  \"files\": [\n    ", ",\n    "
	between := first
	for f, err := range files {
		if err != nil {
			return err
		}
		var b bytes.Buffer
		b.WriteString(between)
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		enc.SetIndent("    ", "  ")
		if err := enc.Encode(f); err != nil {
			return err
		}
		if _, err := w.Write(bytes.TrimSuffix(b.Bytes(), []byte("\n"))); err != nil {
			return err
		}
		between = others
	}
	if between == first {
		return printJSON(w, map[string][]string{"files": {}})
	}
	_, err := io.WriteString(w, "\n  ]\n}\n")
	return err
}
