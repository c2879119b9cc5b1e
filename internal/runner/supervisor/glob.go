package supervisor

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// expand returns the regular files that match any of the patterns, sorted.
// A pattern that is not absolute or is malformed matches nothing.
func expand(patterns []string) []string {
	var found []string
	for _, p := range patterns {
		if !filepath.IsAbs(p) {
			continue
		}
		parts := strings.Split(filepath.Clean(p), "/")[1:]
		deep := slices.Index(parts, "**")
		if deep < 0 {
			matches, _ := filepath.Glob(p) // only the pattern can be wrong
			found = append(found, matches...)
			continue
		}
		// Glob finds where the walk begins, so that what stands before ** may have
		// wildcards too.
		roots, _ := filepath.Glob("/" + filepath.Join(parts[:deep]...))
		for _, root := range roots {
			_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return nil //nolint:nilerr // what cannot be read is not there
				}
				rest := strings.TrimPrefix(strings.TrimPrefix(path, root), "/")
				if matchParts(parts[deep:], strings.Split(rest, "/")) {
					found = append(found, path)
				}
				return nil
			})
		}
	}
	found = slices.DeleteFunc(found, func(path string) bool {
		info, err := os.Stat(path)
		return err != nil || !info.Mode().IsRegular()
	})
	slices.Sort(found)
	return slices.Compact(found)
}

func matchParts(pattern, path []string) bool {
	if len(pattern) == 0 {
		return len(path) == 0
	}
	if pattern[0] == "**" {
		for i := range len(path) + 1 {
			if matchParts(pattern[1:], path[i:]) {
				return true
			}
		}
		return false
	}
	if len(path) == 0 {
		return false
	}
	ok, _ := filepath.Match(pattern[0], path[0])
	return ok && matchParts(pattern[1:], path[1:])
}
