// Agents downloads the pinned programs of all agents into a cache in the user's home, where tests
// find them.
package main

import (
	"fmt"
	"os"

	"github.com/overwinter-dev/overwinter/internal/agent/catalog"
	"github.com/overwinter-dev/overwinter/internal/agent/npm"
	"github.com/overwinter-dev/overwinter/internal/agent/npm/npmtest"
)

func main() {
	for _, a := range catalog.Agents().All() {
		packaged, ok := a.(interface{ Packages() []npm.Package })
		if !ok {
			continue
		}
		for _, p := range packaged.Packages() {
			dir, err := npmtest.Install(p)
			if err != nil {
				fmt.Fprintf(os.Stderr, "%s %s cannot be installed: %v\n", p.Name, p.Version, err)
				os.Exit(1)
			}
			fmt.Fprintln(os.Stdout, a.Name(), dir)
		}
	}
}
