package web

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExamplesOfDocumentsAreTested checks that the examples in docs/clients.md are the files
// that the tests run.
func TestExamplesOfDocumentsAreTested(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/clients.md")
	require.NoError(t, err)
	examples, err := filepath.Glob(source + "/test/examples/*")
	require.NoError(t, err)
	require.NotEmpty(t, examples)
	for _, name := range examples {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		language := filepath.Ext(name)[1:]
		require.Contains(t, string(document), "```"+language+"\n"+string(text)+"```\n", "%s is not in the document, or is another one there", name)
	}
}
