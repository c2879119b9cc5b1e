package boxinit

import (
	"fmt"
	"os"

	"github.com/overwinter-dev/overwinter/internal/localmodal/filetools"
	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
)

// The kernel starts a sandbox's init with the program of the server, whose other packages take three
// quarters of the time of its start to initialize. Packages are initialized in the order of their
// paths, so most of them, and the slowest, would come later.
func init() { Main() }

// Main runs this process as a sandbox's init or file tool if it was started as one; then it does
// not return. In any other process it returns immediately. It must be the first call in main.
func Main() {
	if len(os.Args) == 0 {
		return
	}
	switch os.Args[0] {
	case wire.InitName:
		if err := runInit(); err != nil {
			fmt.Fprintln(os.Stderr, "sandbox init:", err)
			os.Exit(1)
		}
		os.Exit(0)
	case wire.FileToolsName:
		command := ""
		if len(os.Args) > 1 {
			command = os.Args[1]
		}
		os.Exit(filetools.Run(command, os.Stdin, os.Stdout, os.Stderr))
	}
}
