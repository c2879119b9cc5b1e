package devstack

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBannerWaitsForDescriptionOfSandboxes has a worker that is ready before it has described
// them.
func TestBannerWaitsForDescriptionOfSandboxes(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		driver, isolation := "modal", "namespaces"
		if asked.Add(1) < 3 {
			driver, isolation = "unknown", "unknown"
		}
		_, _ = io.WriteString(w, `{"checks": {"sandbox": {"driver": "`+driver+`", "isolation": "`+isolation+`"}}}`)
	}))
	defer server.Close()
	require.Equal(t, sandboxInfo{Driver: "modal", Isolation: "namespaces"}, readSandboxInfo(t.Context(), server.URL))
}
