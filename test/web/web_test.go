package web

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const source = "../../web"

// TestThePackages compiles the packages and runs their tests.
func TestThePackages(t *testing.T) {
	t.Parallel()
	tree := Build(t, source)

	t.Run("types are those of the OpenAPI document", func(t *testing.T) {
		t.Parallel()
		document, err := filepath.Abs("../../api/openapi.yaml")
		require.NoError(t, err)
		_, err = os.ReadFile(document) // go test runs the test again once it is another one
		require.NoError(t, err)
		const schema = "packages/client/src/schema.ts"
		fresh := filepath.Join(t.TempDir(), "schema.ts")
		tree.Run(t, nil, "openapi-typescript", document, "--default-non-nullable", "false", "--output", fresh)
		want, err := os.ReadFile(fresh)
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(source, schema))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "web/%s is not up to date: run make generate-web", schema)
	})

	t.Run("units", func(t *testing.T) {
		t.Parallel()
		logs := t.TempDir()
		writeLogs(t, logs)
		t.Log(tree.Node(t, []string{"OVERWINTER_LOGS=" + logs}, "--test", "--test-reporter=spec", "test/out/unit/"))
	})
}
