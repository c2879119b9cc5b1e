package opencodebridge

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/overwinter-dev/overwinter/internal/agent/opencode/opencodeformat"
)

// pluginLock is the lock file by which OpenCode determines that its plugin library is installed.
// Otherwise it installs the library from the npm registry into every configuration directory,
// whether needed or not.
const pluginLock = `{"name":"opencode","lockfileVersion":3,"packages":{"":{"dependencies":{"@opencode-ai/plugin":"` + opencodeformat.Version + `"}}}}
`

// keepFromInstalling prevents OpenCode from installing anything into a configuration directory. It
// leaves a directory with a package list unchanged, because the list was added on purpose.
func keepFromInstalling(dir string) error {
	for _, name := range []string{"package.json", "package-lock.json", "node_modules"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return nil
		}
	}
	return errors.Join(
		os.MkdirAll(filepath.Join(dir, "node_modules"), 0o755),
		os.WriteFile(filepath.Join(dir, "package-lock.json"), []byte(pluginLock), 0o644),
	)
}

// withoutInstalls calls keepFromInstalling for all configuration directories: the user's, which it
// creates, and those of the home and the workspace, if they exist.
func withoutInstalls(home, workspace, config string) error {
	if config == "" {
		config = filepath.Join(home, ".config")
	}
	errs := []error{keepFromInstalling(filepath.Join(config, "opencode"))}
	for _, dir := range []string{filepath.Join(home, ".opencode"), filepath.Join(workspace, ".opencode")} {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			errs = append(errs, keepFromInstalling(dir))
		}
	}
	return errors.Join(errs...)
}
