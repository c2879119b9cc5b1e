package codex_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/agent/codex"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// BenchmarkParse parses a rollout of repeated turns, such as that of a long session.
func BenchmarkParse(b *testing.B) {
	files := capture.Transcript(b, "testdata/captures/plain-tool")
	require.Len(b, files, 1)
	meta, rest, _ := bytes.Cut(files[0].Data, []byte("\n"))
	data := append(bytes.Clone(meta), '\n')
	for n := range 100 {
		one := rest
		for _, id := range []string{`"id":"`, `"call_id":"`, `"turn_id":"`} {
			one = bytes.ReplaceAll(one, []byte(id), fmt.Appendf(nil, "%s%x-", id, n)) // different in each copy
		}
		data = append(data, one...)
	}
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		_, err := codex.New().Parse([]transcript.File{{Path: files[0].Path, Data: data}})
		require.NoError(b, err)
	}
}

// BenchmarkTranslate translates a stream of many deltas.
func BenchmarkTranslate(b *testing.B) {
	var data []byte
	for _, f := range capture.Frames(b, filepath.Join("testdata/captures/plain-tool", "stdout.jsonl")) {
		n := 1
		if bytes.Contains(f.Data, []byte("agentMessage/delta")) {
			n = 100
		}
		data = append(data, bytes.Repeat(append(f.Data, '\n'), n)...)
	}
	capture.Benchmark(b, codex.New(), data)
}
