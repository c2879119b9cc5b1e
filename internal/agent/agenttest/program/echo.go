package program

import (
	"os"
	"path/filepath"
	"testing"
)

// echoServer is an MCP server with one tool, written in shell.
const echoServer = `while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
  *'"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"echo","version":"1"}}}\n' "$id" ;;
  *'"tools/list"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"echo","description":"says it again","inputSchema":{"type":"object"}}]}}\n' "$id" ;;
  *'"id"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{}}\n' "$id" ;;
  esac
done`

// EchoServer writes an MCP server with the tool echo to a file. It returns the path, to run with
// sh.
func EchoServer(t *testing.T) string {
	t.Helper()
	script := filepath.Join(t.TempDir(), "echo.sh")
	if err := os.WriteFile(script, []byte(echoServer), 0o600); err != nil {
		t.Fatal(err)
	}
	return script
}
