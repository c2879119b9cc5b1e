package structure_test

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// namedTest is a test as the documents name one: package, dot, function.
var namedTest = regexp.MustCompile("`([a-z-]+)\\.(Test[A-Za-z0-9]+)")

var declaredTest = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`)

// TestDocumentsNameExistingTests checks that the tests named in the tables of failures exist.
func TestDocumentsNameExistingTests(t *testing.T) {
	t.Parallel()
	declared := map[string]bool{} // by package and name
	module := os.DirFS(here)
	err := fs.WalkDir(module, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := fs.ReadFile(module, file)
		for _, found := range declaredTest.FindAllSubmatch(text, -1) {
			declared[path.Base(path.Dir(file))+"."+string(found[1])] = true
		}
		return err
	})
	require.NoError(t, err)

	documents, err := fs.Glob(module, "docs/*.md")
	require.NoError(t, err)
	named := 0
	for _, document := range append(documents, "ARCHITECTURE.md", "SECURITY.md", "README.md", "CONTRIBUTING.md") {
		text, err := fs.ReadFile(module, document)
		require.NoError(t, err)
		for _, found := range namedTest.FindAllSubmatch(text, -1) {
			named++
			name := string(found[1]) + "." + string(found[2])
			require.True(t, declared[name], "%s names %s", document, name)
		}
	}
	require.Greater(t, named, 100)
}
