// Package npmtest gives tests the real agents, pinned, out of a cache of the user.
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

// Directory returns where the unpacked package is, and fetches it where it is missing. A test fails
// when that cannot be done.
func Directory(t testing.TB, p npm.Package) string {
	t.Helper()
	dir, err := Install(p)
	if err != nil {
		t.Fatalf("This test needs %s %s, which could not be installed: %v", p.Name, p.Version, err)
	}
	return dir
}

// Install unpacks the package into the user's cache, unless it is there, and returns its directory.
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
