package follow

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/bmatcuk/doublestar/v4"
)

// Expand returns the regular files that match any of the patterns, sorted. ** in a pattern is any number of
// directories; symbolic links to directories are not followed there. A pattern that is not absolute or is
// malformed matches nothing, and what cannot be read is left out.
func Expand(patterns []string) []string {
	var found []string
	for _, p := range patterns {
		if !filepath.IsAbs(p) {
			continue
		}
		matches, _ := doublestar.FilepathGlob(filepath.Clean(p), doublestar.WithNoFollow()) // only the pattern can be wrong
		found = append(found, matches...)
	}
	found = slices.DeleteFunc(found, func(path string) bool {
		info, err := os.Stat(path)
		return err != nil || !info.Mode().IsRegular()
	})
	slices.Sort(found)
	return slices.Compact(found)
}
