// Package npmtest provides the real, pinned agents to tests, from a cache of the user.
package npmtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/npm"
)

// Directory returns the directory of the unpacked package, and downloads the package if necessary.
// The test fails if that is not possible.
func Directory(t testing.TB, p npm.Package) string {
	t.Helper()
	dir, err := Install(p)
	if err != nil {
		t.Fatalf("This test needs %s %s, which could not be installed: %v", p.Name, p.Version, err)
	}
	return dir
}

// Install unpacks the package into the user's cache, unless it is already there, and returns its
// directory.
func Install(p npm.Package) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := p.Directory(filepath.Join(cache, "overwinter"))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	argv := p.Install(dir)
	var stderr bytes.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return dir, nil
}
