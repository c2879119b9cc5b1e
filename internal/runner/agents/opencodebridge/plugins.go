package opencodebridge

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/overwinter-dev/overwinter/internal/agent/opencode/opencodeformat"
)

// pluginLock is what OpenCode takes for the proof that its plugin library is installed. It installs
// it from the npm registry into every directory with configuration, wanted or not.
const pluginLock = `{"name":"opencode","lockfileVersion":3,"packages":{"":{"dependencies":{"@opencode-ai/plugin":"` + opencodeformat.Version + `"}}}}
`

// keepFromInstalling keeps OpenCode from installing anything into a directory with configuration.
// One that has a package list is left unchanged: it is there on purpose.
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

// withoutInstalls does so for all directories with configuration: the user's, which is made, and
// those of the home and the workspace, where they are there.
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
