package acp_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/acp"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// benchSize is the approximate number of bytes to translate.
const benchSize = 4 << 20

// grown repeats a captured stream until it has benchSize bytes, with different ids each time.
func grown(b *testing.B) []byte {
	b.Helper()
	data, err := os.ReadFile("testdata/captures/opencode-tool/stdout.jsonl")
	require.NoError(b, err)
	var out []byte
	for n := 0; len(out) < benchSize; n++ {
		out = append(out, bytes.ReplaceAll(data, []byte(`"toolCallId":"`), fmt.Appendf(nil, `"toolCallId":"%d-`, n))...)
	}
	return out
}

func BenchmarkTranslate(b *testing.B) { capture.Benchmark(b, acp.New(), grown(b)) }

func BenchmarkParse(b *testing.B) {
	var notebook []byte
	capture.Events(b, acp.New(), capture.Journal(grown(b)), func(events []conversation.Event) {
		for _, e := range events {
			if d, ok := e.Data.(conversation.BlockComplete); ok {
				block, err := json.Marshal(d.Block)
				require.NoError(b, err)
				notebook = fmt.Appendf(notebook, `{"overwinter":{"type":"block","data":%s}}`+"\n", block)
			}
		}
	})
	b.SetBytes(int64(len(notebook)))
	b.ReportAllocs()
	for b.Loop() {
		_, err := acp.New().Parse([]transcript.File{{Path: "a.jsonl", Data: notebook}})
		require.NoError(b, err)
	}
}
