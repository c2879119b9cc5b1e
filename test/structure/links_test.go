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

// link matches the address and the anchor of a link in a document.
var link = regexp.MustCompile(`\]\(([^)#\s]*)(#[^)\s]+)?\)`)

var (
	heading   = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInSlug = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// TestLinksOfDocumentsResolve checks that the targets of links exist: files of the repository, and
// headings of documents.
func TestLinksOfDocumentsResolve(t *testing.T) {
	t.Parallel()
	module := os.DirFS(here)
	read := func(name string) string {
		text, err := fs.ReadFile(module, name)
		require.NoError(t, err)
		return string(text)
	}
	documents, err := fs.Glob(module, "*.md")
	require.NoError(t, err)
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		more, err := fs.Glob(module, pattern)
		require.NoError(t, err)
		documents = append(documents, more...)
	}
	followed := 0
	for _, document := range documents {
		for _, found := range link.FindAllStringSubmatch(read(document), -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			followed++
			target := document
			if found[1] != "" {
				target = path.Join(path.Dir(document), found[1])
			}
			_, err := fs.Stat(module, target)
			require.NoError(t, err, "%s links to %s", document, found[1])
			if anchor := strings.TrimPrefix(found[2], "#"); anchor != "" && path.Ext(target) == ".md" {
				require.Contains(t, anchors(read(target)), anchor, "%s links to %s%s", document, found[1], found[2])
			}
		}
	}
	require.Greater(t, followed, 50)
}

// anchors returns the anchors of a document's headings.
func anchors(text string) (out []string) {
	for _, found := range heading.FindAllStringSubmatch(text, -1) {
		out = append(out, strings.ReplaceAll(notInSlug.ReplaceAllString(strings.ToLower(found[1]), ""), " ", "-"))
	}
	return out
}
