package web

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/test/npmtest"
)

// made are the generated directories of web/.
var made = []string{"node_modules", "dist", "out"}

// Tree is a copy of web/ with its packages and tests compiled.
type Tree struct{ Dir string }

// Build returns a compiled copy of web/, whose path relative to the working directory is source.
// The same files are compiled only once, into the cache of the user, because several tests need
// them.
func Build(t *testing.T, source string) Tree {
	t.Helper()
	modules := npmtest.InstallFrom(t, source, "web")
	compiled := npmtest.Made(t, "web-compiled", digest(t, source), func(dir string) {
		tree := Tree{Dir: dir}
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "node_modules"))) // of a test that was killed
		tree.copy(t, source)
		tree.link(t, modules)
		tree.Run(t, nil, "tsc", "-b", "packages/client", "packages/react")
		tree.Run(t, nil, "tsc", "-p", "test")
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "node_modules")))
	})
	tree := Tree{Dir: t.TempDir()}
	require.NoError(t, os.CopyFS(tree.Dir, os.DirFS(compiled)))
	tree.link(t, modules)
	return tree
}

// sources calls visit for each file and directory of web/ that is not generated.
func sources(source string, visit func(rel string, entry fs.DirEntry) error) error {
	return filepath.WalkDir(source, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(source, name)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains(made, entry.Name()):
			return fs.SkipDir
		case filepath.Ext(name) == ".tsbuildinfo":
			return nil
		}
		return visit(rel, entry)
	})
}

// digest returns the digest of the names and contents of the sources.
func digest(t *testing.T, source string) []byte {
	t.Helper()
	sum := sha256.New()
	require.NoError(t, sources(source, func(rel string, entry fs.DirEntry) error {
		if entry.IsDir() {
			return nil
		}
		data, err := os.ReadFile(filepath.Join(source, rel))
		fmt.Fprintf(sum, "%q %d\n%s", rel, len(data), data)
		return err
	}))
	return sum.Sum(nil)
}

func (tree Tree) copy(t *testing.T, source string) {
	t.Helper()
	require.NoError(t, sources(source, func(rel string, entry fs.DirEntry) error {
		to := filepath.Join(tree.Dir, rel)
		if entry.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		data, err := os.ReadFile(filepath.Join(source, rel))
		if err != nil {
			return err
		}
		return os.WriteFile(to, data, 0o644)
	}))
}

// link links the installed packages into the copy, and those of web/ itself under their names.
func (tree Tree) link(t *testing.T, modules string) {
	t.Helper()
	ours := filepath.Join(tree.Dir, "node_modules", "@overwinter")
	require.NoError(t, os.MkdirAll(ours, 0o755))
	installed, err := os.ReadDir(modules)
	require.NoError(t, err)
	for _, entry := range installed {
		if entry.Name() != "@overwinter" {
			require.NoError(t, os.Symlink(filepath.Join(modules, entry.Name()), filepath.Join(tree.Dir, "node_modules", entry.Name())))
		}
	}
	packages, err := os.ReadDir(filepath.Join(tree.Dir, "packages"))
	require.NoError(t, err)
	for _, entry := range packages {
		require.NoError(t, os.Symlink(filepath.Join(tree.Dir, "packages", entry.Name()), filepath.Join(ours, entry.Name())))
	}
}

// Run requires a program of the installed packages to succeed in the copy, and returns its output.
func (tree Tree) Run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	return npmtest.Run(t, tree.Dir, env, filepath.Join("node_modules", ".bin", name), args...)
}

// Node requires a program of the tests to succeed, and returns its output.
func (tree Tree) Node(t *testing.T, env []string, args ...string) string {
	t.Helper()
	return npmtest.Run(t, tree.Dir, env, "node", args...)
}

// Browser returns the environment with which test/out/live/browser.js finds a browser: the Chromium
// of an npm package, or an installed one if that cannot run here because of the processor or
// missing libraries. Without either it returns the reason.
func (tree Tree) Browser(t *testing.T) (env []string, none string) {
	t.Helper()
	// The package unpacks the browser there, and assumes that existing files are complete. Its
	// libraries stay packed, because the browser crashes with them.
	env = []string{"TMPDIR=" + t.TempDir()}
	probe := exec.CommandContext(t.Context(), "node", "--input-type=module", "-e",
		`import c from "@sparticuz/chromium"; import { execFileSync } from "node:child_process"; execFileSync(await c.executablePath(), ["--version"])`)
	probe.Dir, probe.Env = tree.Dir, append(os.Environ(), env...)
	out, err := probe.CombinedOutput()
	if err == nil {
		return env, ""
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return []string{"OVERWINTER_CHROMIUM=" + path}, ""
		}
	}
	return nil, "the Chromium of npm does not run on this machine, and none is installed:\n" + string(out)
}
