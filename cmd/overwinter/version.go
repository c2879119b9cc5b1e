package main

import (
	"fmt"
	"runtime"
)

// release is the version of this program. It is defined only here. CHANGELOG.md describes the
// release.
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

// buildVersion returns the release with the commit of the build, if known: 0.2.0+0123456789ab.
func buildVersion() string {
	if commit == "" {
		return release
	}
	return release + "+" + commit
}
