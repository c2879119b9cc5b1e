package web

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/test/npmtest"
)

// made are the directories of web/ that programs make.
var made = []string{"node_modules", "dist", "out"}

// Tree is a copy of web/ with its packages and tests compiled.
type Tree struct{ Dir string }

// Build compiles a copy of web/, whose path from the working directory is source.
func Build(t *testing.T, source string) Tree {
	t.Helper()
	tree := Tree{Dir: t.TempDir()}
	require.NoError(t, filepath.WalkDir(source, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(source, name)
		if err != nil {
			return err
		}
		to := filepath.Join(tree.Dir, rel)
		if entry.IsDir() {
			if slices.Contains(made, entry.Name()) {
				return fs.SkipDir
			}
			return os.MkdirAll(to, 0o755)
		}
		if filepath.Ext(name) == ".tsbuildinfo" {
			return nil
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(to, data, 0o644)
	}))
	tree.link(t, npmtest.InstallFrom(t, source, "web"))
	tree.Run(t, nil, "tsc", "-b", "packages/client", "packages/react")
	tree.Run(t, nil, "tsc", "-p", "test")
	return tree
}

// link gives the copy the installed packages, and those of web/ itself under their names.
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

// Run requires a program of the installed packages to succeed in the copy, and returns what it printed.
func (tree Tree) Run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	return npmtest.Run(t, tree.Dir, env, filepath.Join("node_modules", ".bin", name), args...)
}

// Node requires a program of the tests to succeed, and returns what it printed.
func (tree Tree) Node(t *testing.T, env []string, args ...string) string {
	t.Helper()
	return npmtest.Run(t, tree.Dir, env, "node", args...)
}

// NoBrowser says why the Chromium of the npm package cannot run here, or nothing.
func (tree Tree) NoBrowser(t *testing.T) string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		return "@sparticuz/chromium has a browser for amd64 alone"
	}
	probe := exec.CommandContext(t.Context(), "node", "--input-type=module", "-e",
		`import c from "@sparticuz/chromium"; import { execFileSync } from "node:child_process"; execFileSync(await c.executablePath(), ["--version"])`)
	probe.Dir = tree.Dir
	if out, err := probe.CombinedOutput(); err != nil && strings.Contains(string(out), "error while loading shared libraries") {
		return "this machine lacks libraries of Chromium:\n" + string(out)
	}
	return ""
}
