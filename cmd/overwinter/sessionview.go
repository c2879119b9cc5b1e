package main

import (
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// viewFlags say how a conversation is shown to people.
type viewFlags struct {
	Plain bool `help:"Print plain text without terminal control, also in a terminal."`
	Full  bool `help:"Show tool inputs and results in full."`
	Times bool `help:"Prefix lines with the time."`
}

// view shows events on w, as fits what it is.
func (f viewFlags) view(w io.Writer) *terminal.View {
	o := terminal.Options{Full: f.Full}
	if f.Times {
		o.Times = time.Local
	}
	if onTerminal(w) && !f.Plain && os.Getenv("TERM") != "dumb" {
		o.Rewrite, o.Color = true, os.Getenv("NO_COLOR") == ""
		o.Width = func() int { columns, _ := terminalColumns(w); return columns }
	}
	return terminal.New(w, o)
}

// onTerminal reports whether a stream of the program is a terminal.
func onTerminal(stream any) bool {
	_, ok := terminalColumns(stream)
	return ok
}

// terminalColumns is the width of a terminal; false for what is none.
func terminalColumns(stream any) (int, bool) {
	file, ok := stream.(*os.File)
	if !ok {
		return 0, false
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, false
	}
	return int(size.Col), true
}
