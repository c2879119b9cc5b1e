package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version string

// VersionCmd prints which build this is.
type VersionCmd struct{}

// Run prints one line: the version, the Go release and the platform.
func (VersionCmd) Run(s streams) error {
	_, err := fmt.Fprintf(s.stdout, "overwinter %s %s %s/%s\n", buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// buildVersion is the version that the build was given, else what the toolchain noted, else "devel".
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
