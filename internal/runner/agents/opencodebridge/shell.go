package opencodebridge

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent/opencode/opencodeformat"
)

// writeShell writes a shell without secrets in its environment for the agent's commands, and
// returns its path. OpenCode itself passes on its whole environment.
func writeShell(dir string) (string, error) {
	shell, err := exec.LookPath("bash")
	if err != nil {
		if shell, err = exec.LookPath("sh"); err != nil {
			return "", fmt.Errorf("find a shell: %w", err)
		}
	}
	hidden := append(opencodeformat.Secrets(), "OPENCODE_SERVER_PASSWORD")
	script := fmt.Sprintf("#!/bin/sh\nunset %s\nexec '%s' \"$@\"\n", strings.Join(hidden, " "), shell)
	// OpenCode distinguishes shells by name.
	name := filepath.Join(dir, filepath.Base(shell))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("write a shell: %w", err)
	}
	if err := os.WriteFile(name, []byte(script), 0o755); err != nil {
		return "", fmt.Errorf("write a shell: %w", err)
	}
	return name, nil
}
