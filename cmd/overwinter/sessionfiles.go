package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/cli"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// sessionFilesCmd lists the files of a workspace, or prints one of them. It does not wake the
// session.
type sessionFilesCmd struct {
	sessionArg
	Path   string `arg:"" optional:"" help:"File to print. Default: list all files."`
	Prefix string `placeholder:"TEXT" help:"List only paths with this prefix, such as src/."`
}

// Validate checks what kong cannot.
func (c *sessionFilesCmd) Validate() error {
	if c.Path != "" && c.Prefix != "" {
		return usageError{"name a file or a --prefix, not both"}
	}
	return nil
}

// Run prints one line for each file, or the bytes of one file.
func (c *sessionFilesCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.on(ctx, c.sessionArg, func(api *client.Client, id string) error {
		if c.Path != "" {
			data, err := api.FileGet(ctx, id, c.Path)
			if err != nil {
				return err
			}
			return printFile(s.stdout, data)
		}
		files, err := api.FileList(ctx, id, c.Prefix)
		if err != nil {
			return err
		}
		return parent.printFiles(s.stdout, files)
	})
}

// printFiles writes one line for each file.
func (c *apiFlags) printFiles(w io.Writer, files client.Page[client.WorkspaceFile]) error {
	if c.json() {
		return printJSON(w, files)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SIZE\tMODIFIED\tPATH") // Flush returns the error
	for _, f := range files.Items {
		path := terminal.OneLine(f.Path, 0)
		if !f.Saved {
			path += inBrackets("not saved: " + terminal.OneLine(f.Unsaved, terminal.LineRunes))
		}
		fmt.Fprintf(t, "%d\t%s\t%s\n", f.Size, c.when(f.ModifiedAt), path)
	}
	return t.Flush()
}

// printFile writes the bytes unchanged, but removes control sequences if the output is a terminal.
func printFile(w io.Writer, data []byte) error {
	if cli.IsTerminal(w) {
		data = []byte(terminal.Printable(string(data)))
	}
	_, err := w.Write(data)
	return err
}

// sessionDiffCmd prints the changes of a workspace. It does not wake the session.
type sessionDiffCmd struct {
	sessionArg
	Stat bool `help:"Print only the changed files and the size of each change."`
}

// Run prints the patch, which git apply accepts, or a summary.
func (c *sessionDiffCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.on(ctx, c.sessionArg, func(api *client.Client, id string) error {
		d, err := api.Diff(ctx, id)
		if err != nil {
			return err
		}
		return parent.printDiff(s.stdout, d, c.Stat)
	})
}

// printDiff writes the patch, or a summary.
func (c *apiFlags) printDiff(w io.Writer, d client.Diff, stat bool) error {
	switch {
	case c.json():
		return printJSON(w, d)
	case stat:
		return printStat(w, d)
	}
	if err := printFile(w, []byte(d.Patch)); err != nil {
		return err
	}
	if d.Truncated {
		return fmt.Errorf("the diff is truncated: its first %d bytes are stored", len(d.Patch))
	}
	return nil
}

// printStat writes one line for each file that differs, and one line for the total.
func printStat(w io.Writer, d client.Diff) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range d.Files {
		lines := fmt.Sprintf("+%d -%d", f.Additions, f.Deletions)
		if f.Binary {
			lines = "binary"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", f.Change, lines, terminal.OneLine(f.Path, 0)) // Flush returns the error
	}
	fmt.Fprintf(t, "files changed: %d, +%d -%d%s\n", d.FilesChanged, d.Additions, d.Deletions, gitState(d))
	return t.Flush()
}

// gitState describes the state of the repository, if there is one.
func gitState(d client.Diff) string {
	if d.Git == nil {
		return ""
	}
	state := "clean"
	if d.Git.Dirty {
		state = "not committed"
	}
	at := terminal.OneLine(d.Git.Branch, terminal.TitleRunes)
	if head := terminal.OneLine(d.Git.Head, terminal.TitleRunes+1); head != "" {
		at += " at " + head[:min(len(head), 12)]
	}
	return inBrackets(at + ", " + state)
}
