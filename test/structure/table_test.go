package structure_test

import (
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// importTable has, by package, the imported packages of this module according to ARCHITECTURE.md.
type importTable map[string][]string

// TestTableOfImports compares the table with the code, both ways: an import that is not in the
// table was not reviewed, and one that is only in the table is misleading.
func TestTableOfImports(t *testing.T) {
	t.Parallel()
	module := os.DirFS(here)
	files, err := readImports(module)
	require.NoError(t, err)
	text, err := os.ReadFile(path.Join(here, "ARCHITECTURE.md"))
	require.NoError(t, err)
	table := readTable(string(text), slices.Collect(maps.Keys(files)))
	require.Empty(t, table.differences(files))
	for _, rule := range importRules {
		require.True(t, rule.pkg == "." || table[rule.pkg] != nil, "the table has no row for %s", rule.pkg)
	}
	require.NotContains(t, table, "cmd", "a program imports anything")
}

func TestDifferencesOfTableAreFound(t *testing.T) {
	t.Parallel()
	files := imports{
		"api/a.go":               {"fmt", ours("internal/session"), ours("api/apitest")},
		"api/apitest/b.go":       {ours("internal/postgres")},
		"internal/session/c.go":  {"github.com/google/uuid"},
		"internal/contract/d.go": {ours("internal/session")},
	}
	table := readTable(`
| package | imports | never |
|---|---|---|
| api | session | pgx |
| internal/session, internal/contract | none | any framework |
| cmd | any | to be imported |
`, slices.Collect(maps.Keys(files)))
	require.Equal(t, importTable{"api": {"internal/session"}, "internal/session": {}, "internal/contract": {}}, table)
	require.Equal(t, []string{"internal/contract imports internal/session, which is not in the table"}, table.differences(files))

	table = importTable{"api": {"internal/session", "internal/contract"}, "worker": {}}
	require.Equal(t, []string{"api does not import internal/contract, which is in the table", "worker has a row and no files"}, table.differences(files))
}

// readTable reads the rows of the table. A name is a package in internal if no directory of the
// module has that name.
func readTable(text string, files []string) importTable {
	_, text, _ = strings.Cut(text, "| package | imports | never |\n")
	text, _, _ = strings.Cut(text, "\n\n")
	table := importTable{}
	for _, row := range strings.Split(text, "\n")[1:] {
		cells := strings.Split(row, "|")
		if len(cells) != 5 || strings.TrimSpace(cells[2]) == "any" {
			continue
		}
		listed := []string{}
		for _, name := range names(cells[2]) {
			if name == "none" {
				continue
			}
			if !slices.ContainsFunc(files, func(file string) bool { return path.Dir(file) == name }) {
				name = "internal/" + name
			}
			listed = append(listed, name)
		}
		for _, pkg := range names(cells[1]) {
			table[pkg] = listed
		}
	}
	return table
}

func names(cell string) []string {
	var out []string
	for name := range strings.SplitSeq(cell, ",") {
		out = append(out, strings.TrimSpace(name))
	}
	return out
}

// differences returns the differences between the table and the imports, a sentence each, in order.
func (table importTable) differences(files imports) []string {
	var found []string
	for _, pkg := range slices.Sorted(maps.Keys(table)) {
		imported, exists := map[string]bool{}, false
		for file, paths := range files {
			if path.Dir(file) != pkg {
				continue
			}
			exists = true
			for _, p := range paths {
				if name, ok := strings.CutPrefix(p, module+"/"); ok && !under(name, pkg) {
					imported[name] = true
				}
			}
		}
		if !exists {
			found = append(found, pkg+" has a row and no files")
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(imported)) {
			if !slices.Contains(table[pkg], name) {
				found = append(found, fmt.Sprintf("%s imports %s, which is not in the table", pkg, name))
			}
		}
		for _, name := range table[pkg] {
			if !imported[name] {
				found = append(found, fmt.Sprintf("%s does not import %s, which is in the table", pkg, name))
			}
		}
	}
	return found
}
