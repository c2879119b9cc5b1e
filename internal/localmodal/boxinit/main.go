package boxinit

import (
	"fmt"
	"os"

	"github.com/overwinter-dev/overwinter/internal/localmodal/filetools"
	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
)

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
