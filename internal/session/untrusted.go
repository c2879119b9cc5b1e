package session

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/overwinter-dev/overwinter/internal/transcript"
)

const (
	// MaxManifestBytes bounds the paths of a manifest together.
	MaxManifestBytes = 8 << 20
	// maxManifestText bounds each other text of a manifest that a runner makes.
	maxManifestText = 1024
	// MaxReceiptItems bounds each list of a receipt. Receipts are events, and results of activities, which the engine bounds.
	MaxReceiptItems = 100
	// MaxReceiptItem bounds each item of such a list, in bytes.
	MaxReceiptItem = 2048
)

// Bounded returns the manifest as far as it is within bounds. It was printed by a program of the sandbox, which may not be
// the runner any more.
func (m Manifest) Bounded() Manifest {
	bytes := 0
	files := []ManifestFile{}
	for _, f := range m.AgentFiles {
		if len(f.Path) > transcript.MaxPath || !utf8.ValidString(f.Path) || strings.IndexByte(f.Path, 0) >= 0 {
			continue
		}
		if bytes += len(f.Path); len(files) == transcript.MaxFiles || bytes > MaxManifestBytes {
			break
		}
		f.SHA256 = boundedText(f.SHA256, maxManifestText)
		files = append(files, f)
	}
	m.AgentFiles, m.Lost = files, nil // what is lost only the worker knows
	m.Runner = boundedText(m.Runner, maxManifestText)
	if m.Git != nil {
		m.Git = &ManifestGit{Head: boundedText(m.Git.Head, maxManifestText), DirtyHash: boundedText(m.Git.DirtyHash, maxManifestText)}
	}
	if m.Tree != nil {
		tree := *m.Tree
		tree.Digest, tree.Index = boundedText(tree.Digest, maxManifestText), boundedText(tree.Index, maxManifestText)
		tree.Unchecked = boundedText(tree.Unchecked, maxManifestText)
		m.Tree = &tree
	}
	return m
}

// Bounded returns the receipt with the first items of each list, and how many more there are.
func (r Receipt) Bounded() Receipt {
	r.Missing, r.Unchecked = boundedList(r.Missing), boundedList(r.Unchecked)
	return r
}

func boundedList(items []string) []string {
	if items == nil {
		return nil
	}
	shown := min(len(items), MaxReceiptItems)
	out := make([]string, 0, shown+1)
	for _, item := range items[:shown] {
		out = append(out, boundedText(item, MaxReceiptItem))
	}
	if more := len(items) - shown; more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return out
}

// boundedText is the beginning of a text that may be too long, without what is no UTF-8.
func boundedText(s string, most int) string {
	if len(s) > most {
		s = s[:most-len("…")] + "…"
	}
	return strings.ToValidUTF8(s, "")
}
