package web

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/test/npmtest"
)

const source = "../../web"

// TestPackages compiles the packages and runs their tests.
func TestPackages(t *testing.T) {
	t.Parallel()
	tree := Build(t, source)

	t.Run("types are those of the OpenAPI document", func(t *testing.T) {
		t.Parallel()
		document, err := filepath.Abs("../../api/openapi.yaml")
		require.NoError(t, err)
		_, err = os.ReadFile(document) // go test reruns the test after a change
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

	t.Run("the packed client is whole", func(t *testing.T) {
		t.Parallel()
		packed := t.TempDir()
		npmtest.Run(t, filepath.Join(tree.Dir, "packages", "client"), nil, "npm", "pack", "--pack-destination", packed)
		archives, err := filepath.Glob(filepath.Join(packed, "*.tgz"))
		require.NoError(t, err)
		require.Len(t, archives, 1)
		project := t.TempDir()
		write := func(name, text string) {
			require.NoError(t, os.WriteFile(filepath.Join(project, name), []byte(text), 0o600))
		}
		write("package.json", `{"type": "module", "private": true}`)
		npmtest.Run(t, project, nil, "npm", "install", "--offline", "--no-audit", "--no-fund", archives[0])
		write("main.ts", `import { createClient, Folder, OverwinterError, type Event, type Session } from "@overwinter/client";
const client = createClient({ baseUrl: "http://127.0.0.1:1", attempts: 1 });
const read: Promise<Session> = client.session("ses_1").get();
const events: Event[] = [];
console.log(events.length, Array.isArray(new Folder().conversations), OverwinterError.name, await read.catch((error: unknown) => error instanceof TypeError));
`)
		tsc, err := filepath.Abs(filepath.Join(tree.Dir, "node_modules", ".bin", "tsc"))
		require.NoError(t, err)
		npmtest.Run(t, project, nil, tsc, "--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom", "main.ts")
		require.Equal(t, "0 true OverwinterError true\n", npmtest.Run(t, project, nil, "node", "main.js"))
	})

	t.Run("units", func(t *testing.T) {
		t.Parallel()
		logs := t.TempDir()
		writeLogs(t, logs)
		t.Log(tree.Node(t, []string{"OVERWINTER_LOGS=" + logs}, "--test", "--test-reporter=spec", "test/out/unit/"))
	})
}
