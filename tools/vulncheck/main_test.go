package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// module returns a module that calls a function of the standard library.
func module(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "go.mod", "module example.com/m\n\ngo 1.26\n")
	write(t, dir, "main.go", "package main\n\nimport \"strings\"\n\nfunc main() { println(strings.ToUpper(\"x\")) }\n")
	return dir
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

// database returns a database with one vulnerability, in that function of strings.
func database(t *testing.T, function string) string {
	t.Helper()
	dir := t.TempDir()
	const modified = `"modified":"2026-01-02T03:04:05Z"`
	write(t, dir, "index/db.json", `{`+modified+`}`)
	write(t, dir, "index/modules.json", `[{"path":"stdlib","vulns":[{"id":"GO-2099-0001",`+modified+`}]}]`)
	write(t, dir, "ID/GO-2099-0001.json", `{"schema_version":"1.3.1","id":"GO-2099-0001",`+modified+`,"published":"2026-01-02T03:04:05Z",
		"summary":"A fault for a test","details":"A fault for a test.",
		"database_specific":{"url":"https://pkg.go.dev/vuln/GO-2099-0001"},"affected":[{"package":{"name":"stdlib","ecosystem":"Go"},
		"ranges":[{"type":"SEMVER","events":[{"introduced":"0"}]}],
		"ecosystem_specific":{"imports":[{"path":"strings","symbols":["`+function+`"]}]}}]}`)
	return "file://" + dir
}

func TestCalledVulnerabilitiesFail(t *testing.T) {
	t.Chdir("../..")
	var out bytes.Buffer
	require.Equal(t, exitVulnerable, check(t.Context(), database(t, "ToUpper"), []string{module(t)}, &out), out.String())
	// Without that address in the database, govulncheck panics here, sometimes after it has exited with 0.
	require.Contains(t, out.String(), "https://pkg.go.dev/vuln/GO-2099-0001")

	out.Reset()
	require.Equal(t, exitClean, check(t.Context(), database(t, "Title"), []string{module(t)}, &out), out.String())
	require.Contains(t, out.String(), "calls none that the database knows")

	out.Reset()
	require.Equal(t, exitVulnerable, check(t.Context(), database(t, "Title"), []string{t.TempDir()}, &out), "what cannot be checked is not clean")
}

func TestUnavailableDatabaseIsError(t *testing.T) {
	t.Parallel()
	broken := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(broken.Close)
	for _, address := range []string{"http://127.0.0.1:1", broken.URL, "file://" + t.TempDir()} {
		var out bytes.Buffer
		require.Equal(t, exitUnchecked, check(t.Context(), address, []string{"."}, &out))
		require.Contains(t, out.String(), "NOT CHECKED: the database "+address+" is unreachable")
	}
}
