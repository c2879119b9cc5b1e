// Package claudecli gives tests the real Claude Code, pinned.
package claudecli

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// Path returns where the program is. It is installed into a cache of the user where it is missing;
// a test fails when that cannot be done.
func Path(t testing.TB) string {
	t.Helper()
	path, err := install()
	if err != nil {
		t.Fatalf("This test needs Claude Code, which could not be installed: %v", err)
	}
	return path
}

var install = sync.OnceValues(func() (string, error) {
	_, here, _, _ := runtime.Caller(0)
	script := filepath.Join(filepath.Dir(here), "../../../../tools/install-claude.sh")
	var stderr bytes.Buffer
	cmd := exec.Command(script) // runs once for all tests of a process
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
})
