package acp_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/acp"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
)

// TestCaptures reads streams of real agents that ran without the bridge. Each capture has a golden
// file, blocks; rewrite it with go test -run Captures -update.
func TestCaptures(t *testing.T) {
	t.Parallel()
	capture.Each(t, "testdata/captures/*", func(t *testing.T, dir string) {
		c, ends := capture.Fold(t, acp.New(), capture.Frames(t, filepath.Join(dir, "stdout.jsonl")))
		for _, b := range c.Threads[0].Blocks {
			require.NotEqual(t, "unparsed", b.Subtype, b.Message)
		}
		capture.Golden(t, filepath.Join(dir, "blocks"), append(capture.Lines(c)[1:], ends...))
	})
}
