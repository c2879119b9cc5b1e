package profile

import (
	"path"
	"slices"
	"strings"
)

// IsConfiguration reports whether an agent reads its configuration from the file.
func (f File) IsConfiguration() bool {
	base := path.Base(f.Path)
	if strings.HasPrefix(base, "opencode.json") || base == ".env" || strings.HasPrefix(base, ".env.") {
		return true
	}
	return path.Ext(base) != ".md" && slices.ContainsFunc(strings.Split(path.Dir(f.Path), "/"), func(dir string) bool {
		return slices.Contains([]string{".claude", ".codex", ".gemini", ".opencode"}, dir)
	})
}
