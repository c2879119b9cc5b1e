package claude_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/agent/claude"
)

// grown repeats the output of a program, with different ids each time, until it has size bytes.
func grown(data []byte, size int) []byte {
	var out []byte
	for n := 0; len(out) < size; n++ {
		one := bytes.ReplaceAll(data, []byte(`"uuid":"`), fmt.Appendf(nil, `"uuid":"%x-`, n))
		one = bytes.ReplaceAll(one, []byte(`msg_`), fmt.Appendf(nil, "msg_%d_", n))
		out = append(out, bytes.ReplaceAll(one, []byte(`toolu_`), fmt.Appendf(nil, "toolu_%d_", n))...)
	}
	return out
}

// benchmarked lists a capture without and one with large content that becomes no block.
var benchmarked = []string{"plain-multi", "two-subagents", "compacted"}

func BenchmarkParse(b *testing.B) {
	for _, name := range benchmarked {
		b.Run(name, func(b *testing.B) {
			files := capture.Transcript(b, filepath.Join("testdata/captures", name))
			var total int64
			for i, f := range files {
				if filepath.Ext(f.Path) == ".jsonl" {
					files[i].Data = grown(f.Data, 4<<20)
				}
				total += int64(len(files[i].Data))
			}
			b.SetBytes(total)
			b.ReportAllocs()
			for b.Loop() {
				_, err := claude.New().Parse(files)
				require.NoError(b, err)
			}
		})
	}
}

func BenchmarkTranslate(b *testing.B) {
	for _, name := range benchmarked {
		b.Run(name, func(b *testing.B) {
			data, err := os.ReadFile(filepath.Join("testdata/captures", name, "stdout.jsonl"))
			require.NoError(b, err)
			capture.Benchmark(b, claude.New(), grown(data, 4<<20))
		})
	}
}
