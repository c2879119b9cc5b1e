package follow

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/bmatcuk/doublestar/v4"
)

// Expand returns the sorted regular files that match any of the patterns. ** in a pattern matches
// any number of directories, but follows no symbolic links to directories. A relative or malformed
// pattern matches nothing, and unreadable directories are skipped.
func Expand(patterns []string) []string {
	var found []string
	for _, p := range patterns {
		if !filepath.IsAbs(p) {
			continue
		}
		matches, _ := doublestar.FilepathGlob(filepath.Clean(p), doublestar.WithNoFollow()) // only an invalid pattern is an error
		found = append(found, matches...)
	}
	found = slices.DeleteFunc(found, func(path string) bool {
		info, err := os.Stat(path)
		return err != nil || !info.Mode().IsRegular()
	})
	slices.Sort(found)
	return slices.Compact(found)
}
