package manifest

import (
	"strings"
	"unicode/utf8"

	"github.com/overwinter-dev/overwinter/internal/transcript"
)

const (
	// maxBytes bounds the total size of the paths in a manifest.
	maxBytes = 8 << 20
	// maxText bounds every other text of a runner's manifest.
	maxText = 1024
)

// Bounded returns the manifest, truncated to its bounds. A program in the sandbox printed it, which
// may have replaced the runner.
func (m Manifest) Bounded() Manifest {
	bytes := 0
	files := []File{}
	for _, f := range m.AgentFiles {
		if len(f.Path) > transcript.MaxPath || !utf8.ValidString(f.Path) || strings.IndexByte(f.Path, 0) >= 0 {
			continue
		}
		if bytes += len(f.Path); len(files) == transcript.MaxFiles || bytes > maxBytes {
			break
		}
		f.SHA256 = bounded(f.SHA256)
		files = append(files, f)
	}
	m.AgentFiles, m.Lost, m.From = files, nil, "" // only the worker knows the losses
	m.Runner = bounded(m.Runner)
	if m.Git != nil {
		m.Git = &Git{Head: bounded(m.Git.Head), DirtyHash: bounded(m.Git.DirtyHash)}
	}
	if m.Tree != nil {
		tree := *m.Tree
		tree.Digest, tree.Index = bounded(tree.Digest), bounded(tree.Index)
		tree.Unchecked = bounded(tree.Unchecked)
		m.Tree = &tree
	}
	return m
}

// bounded returns the beginning of a text that may be too long, without invalid UTF-8.
func bounded(s string) string {
	if len(s) > maxText {
		s = s[:maxText-len("…")] + "…"
	}
	return strings.ToValidUTF8(s, "")
}
