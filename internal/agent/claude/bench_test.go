package claude_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/claude"
)

// grown repeats the output of a program until there are size bytes, each time with different ids.
func grown(data []byte, size int) []byte {
	var out []byte
	for n := 0; len(out) < size; n++ {
		one := bytes.ReplaceAll(data, []byte(`"uuid":"`), fmt.Appendf(nil, `"uuid":"%x-`, n))
		one = bytes.ReplaceAll(one, []byte(`msg_`), fmt.Appendf(nil, "msg_%d_", n))
		out = append(out, bytes.ReplaceAll(one, []byte(`toolu_`), fmt.Appendf(nil, "toolu_%d_", n))...)
	}
	return out
}

// benchmarked are captures without and with bulk that no block is made of.
var benchmarked = []string{"plain-multi", "two-subagents", "compacted"}

func BenchmarkParse(b *testing.B) {
	for _, name := range benchmarked {
		b.Run(name, func(b *testing.B) {
			t := &testing.T{}
			files := transcript(t, filepath.Join("testdata/captures", name))
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
			t := &testing.T{}
			one := frames(t, filepath.Join("testdata/captures", name, "stdout.jsonl"))
			var all []agent.Frame
			var data []byte
			for _, f := range one {
				data = append(append(data, f.Data...), '\n')
			}
			for line := range bytes.Lines(grown(data, 4<<20)) {
				all = append(all, agent.Frame{No: int64(len(all)), Stream: agent.Stdout, At: begun, Data: line[:len(line)-1]})
			}
			b.SetBytes(4 << 20)
			b.ReportAllocs()
			for b.Loop() {
				tr, err := claude.New().NewTranslator(agent.RunContext{}, nil)
				require.NoError(b, err)
				for _, f := range all {
					out, err := tr.Translate(f)
					require.NoError(b, err)
					if out.End != nil {
						tr, err = claude.New().NewTranslator(agent.RunContext{}, nil)
						require.NoError(b, err)
					}
				}
			}
		})
	}
}
