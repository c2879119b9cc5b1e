package cli

import (
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// View is how a conversation is displayed.
type View struct {
	// Plain prints no terminal control sequences, even on a terminal.
	Plain bool
	// Full shows inputs and results of tools without truncation.
	Full bool
	// Times precedes each line with the local time.
	Times bool
}

// on returns a display of events on w.
func (v View) on(w io.Writer) *terminal.View {
	o := terminal.Options{Full: v.Full}
	if v.Times {
		o.Times = time.Local
	}
	if v.rewrites(w) {
		o.Rewrite, o.Color = true, os.Getenv("NO_COLOR") == ""
		o.Width = func() int { return width(w) }
	}
	return terminal.New(w, o)
}

// rewrites reports whether w is a terminal that takes control sequences.
func (v View) rewrites(w io.Writer) bool {
	return IsTerminal(w) && !v.Plain && os.Getenv("TERM") != "dumb"
}

// IsTerminal reports whether a reader or writer is a terminal.
func IsTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// width is the number of columns of a terminal; 0 if it is not known.
func width(stream any) int {
	file, ok := stream.(*os.File)
	if !ok {
		return 0
	}
	columns, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return columns
}
