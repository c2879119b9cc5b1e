package gemini_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// benchSize is the approximate number of bytes to translate.
const benchSize = 4 << 20

// grown repeats a capture until it has benchSize bytes, with different ids each time.
func grown(b *testing.B, name string) []byte {
	b.Helper()
	data, err := os.ReadFile(name)
	require.NoError(b, err)
	var out []byte
	for n := 0; len(out) < benchSize; n++ {
		one := bytes.ReplaceAll(data, []byte(`"id":"`), fmt.Appendf(nil, `"id":"%d-`, n))
		one = bytes.ReplaceAll(one, []byte(`run_`), fmt.Appendf(nil, `run_%d`, n))
		out = append(out, bytes.ReplaceAll(one, []byte(`"toolCallId":"`), fmt.Appendf(nil, `"toolCallId":"%d-`, n))...)
	}
	return out
}

// only returns the only file that matches the pattern.
func only(b *testing.B, pattern string) string {
	b.Helper()
	names, err := filepath.Glob(pattern)
	require.NoError(b, err)
	require.Len(b, names, 1)
	return names[0]
}

func BenchmarkParse(b *testing.B) {
	for name, file := range map[string]string{
		"notebook.jsonl": only(b, "testdata/captures/bridge-tool/transcript/*.jsonl"),
		"chat.jsonl":     only(b, "testdata/captures/native-tool/transcript/*/chats/*.jsonl"),
	} {
		b.Run(name, func(b *testing.B) {
			files := []transcript.File{{Path: name, Data: grown(b, file)}}
			b.SetBytes(int64(len(files[0].Data)))
			b.ReportAllocs()
			for b.Loop() {
				_, err := gemini.New().Parse(files)
				require.NoError(b, err)
			}
		})
	}
}

func BenchmarkTranslate(b *testing.B) {
	for _, name := range []string{"bridge-tool", "acp-tool", "native-tool"} {
		b.Run(name, func(b *testing.B) {
			capture.Benchmark(b, gemini.New(), grown(b, "testdata/captures/"+name+"/stdout.jsonl"))
		})
	}
}
