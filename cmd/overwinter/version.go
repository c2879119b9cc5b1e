package main

import (
	"fmt"
	"runtime"
)

// release is the version of this program: the only place that states it. CHANGELOG.md describes it.
const release = "0.3.0"

// commit is set by the build: -ldflags "-X main.commit=0123456789ab".
var commit string

// versionCmd prints the build.
type versionCmd struct{}

// Run prints one line: the version with the commit, the Go release and the platform.
func (versionCmd) Run(s streams) error {
	_, err := fmt.Fprintf(s.stdout, "overwinter %s %s %s/%s\n", buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// buildVersion is the release with the commit that was built, if it is known: 0.2.0+0123456789ab.
func buildVersion() string {
	if commit == "" {
		return release
	}
	return release + "+" + commit
}
