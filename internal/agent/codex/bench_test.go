package codex_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/codex"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// BenchmarkParse reads a rollout again and again, as a long session has one.
func BenchmarkParse(b *testing.B) {
	files := transcript(b, "testdata/captures/plain-tool")
	require.Len(b, files, 1)
	meta, rest, _ := bytes.Cut(files[0].Data, []byte("\n"))
	data := append(bytes.Clone(meta), '\n')
	for n := range 100 {
		one := rest
		for _, id := range []string{`"id":"`, `"call_id":"`, `"turn_id":"`} {
			one = bytes.ReplaceAll(one, []byte(id), fmt.Appendf(nil, "%s%x-", id, n)) // different each time
		}
		data = append(data, one...)
	}
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		_, err := codex.New().Parse([]session.TranscriptFile{{Path: files[0].Path, Data: data}})
		require.NoError(b, err)
	}
}

// BenchmarkTranslate reads a stream of many deltas.
func BenchmarkTranslate(b *testing.B) {
	var all []agent.Frame
	size := 0
	for _, f := range frames(b, filepath.Join("testdata/captures/plain-tool", "stdout.jsonl")) {
		n := 1
		if bytes.Contains(f.Data, []byte("agentMessage/delta")) {
			n = 100
		}
		for range n {
			all = append(all, f)
			size += len(f.Data)
		}
	}
	b.SetBytes(int64(size))
	for b.Loop() {
		tr, err := codex.New().NewTranslator(agent.RunContext{}, nil)
		require.NoError(b, err)
		for _, f := range all {
			_, err := tr.Translate(f)
			require.NoError(b, err)
		}
	}
}
