package opencode_test

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// grown repeats the program's output, with different ids each time, until it has size bytes.
func grown(data []byte, size int) []byte {
	var out []byte
	for n := 0; len(out) < size; n++ {
		one := data
		for _, kind := range []string{"msg", "prt", "ses"} {
			one = bytes.ReplaceAll(one, []byte(kind+"_"), fmt.Appendf(nil, "%s_%06x", kind, n))
		}
		out = append(out, one...)
	}
	return out
}

func BenchmarkParse(b *testing.B) {
	data, err := os.ReadFile("testdata/captures/tool/http.jsonl")
	require.NoError(b, err)
	data = grown(data, 4<<20)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		_, err := opencode.New().Parse([]transcript.File{{Path: "a.jsonl", Data: data}})
		require.NoError(b, err)
	}
}

func BenchmarkTranslate(b *testing.B) {
	data, err := os.ReadFile("testdata/captures/tool/events.sse")
	require.NoError(b, err)
	capture.Benchmark(b, opencode.New(), grown(data, 4<<20))
}
