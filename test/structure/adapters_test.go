package structure_test

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// adapterFiles are in every adapter.
var adapterFiles = []string{"doc.go", "adapter.go", "translate.go", "parse.go"}

// TestAdapterFilesHaveSameNames checks the names against the table of docs/adding-an-agent.md.
func TestAdapterFilesHaveSameNames(t *testing.T) {
	t.Parallel()
	module := os.DirFS(here)
	document, err := fs.ReadFile(module, "docs/adding-an-agent.md")
	require.NoError(t, err)
	known := tableOfFiles(string(document))
	require.Subset(t, known, adapterFiles, "the table has them")
	dirs, err := fs.ReadDir(module, "internal/agent")
	require.NoError(t, err)
	for _, d := range dirs {
		if !d.IsDir() || slices.Contains(notAgents, d.Name()) {
			continue
		}
		require.Empty(t, misnamed(programFiles(t, module, "internal/agent/"+d.Name()), known), "adapter %s", d.Name())
	}
	require.Empty(t, misnamed(programFiles(t, module, "internal/agent/agenttest/parrot"), known), "the worked example")

	bridges, err := fs.Glob(module, "internal/runner/agents/*bridge")
	require.NoError(t, err)
	require.NotEmpty(t, bridges)
	for _, b := range bridges {
		require.Contains(t, programFiles(t, module, b), "bridge.go", b)
	}
}

func TestMisnamedFilesAreFound(t *testing.T) {
	t.Parallel()
	known := tableOfFiles("| `other.go` | of another table |\n\n| file | content |\n|---|---|\n| `a.go`, `doc.go` | `b.go` |\n| `parse.go` | x |\n\n`c.go`")
	require.Equal(t, []string{"a.go", "doc.go", "parse.go"}, known)
	require.Equal(t, []string{"c.go is not in the table", "adapter.go is missing", "translate.go is missing"},
		misnamed([]string{"doc.go", "c.go", "parse.go"}, known))
}

var goFile = regexp.MustCompile("`([a-z]+\\.go)`")

// tableOfFiles returns the names in the first column of the document's table of files.
func tableOfFiles(document string) []string {
	_, rest, _ := strings.Cut(document, "| file | content |\n")
	table, _, _ := strings.Cut(rest, "\n\n")
	var names []string
	for row := range strings.Lines(table) {
		columns := strings.Split(row, "|")
		for _, m := range goFile.FindAllStringSubmatch(columns[1], -1) {
			names = append(names, m[1])
		}
	}
	return names
}

// programFiles lists the Go files of a folder that are not tests.
func programFiles(t *testing.T, module fs.FS, dir string) []string {
	t.Helper()
	files, err := fs.Glob(module, path.Join(dir, "*.go"))
	require.NoError(t, err)
	var names []string
	for _, f := range files {
		if !strings.HasSuffix(f, "_test.go") {
			names = append(names, path.Base(f))
		}
	}
	return names
}

// misnamed describes the wrong names of an adapter's files.
func misnamed(files, known []string) []string {
	var found []string
	for _, f := range files {
		if !slices.Contains(known, f) {
			found = append(found, f+" is not in the table")
		}
	}
	for _, f := range adapterFiles {
		if !slices.Contains(files, f) {
			found = append(found, f+" is missing")
		}
	}
	return found
}
