package process

import (
	"bufio"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReadLineCutsAtItsBound(t *testing.T) {
	t.Parallel()
	type line struct {
		text string
		cut  bool
	}
	cases := map[string][]line{
		"":                                 nil,
		"\n":                               {{"", false}},
		"a\nb\n":                           {{"a", false}, {"b", false}},
		"a\r\n":                            {{"a\r", false}},
		"no newline":                       {{"no newline", true}},
		"exactly 20 bytes....\nx\n":        {{"exactly 20 bytes....", false}, {"x", false}},
		"one more than 20 bytes\nx\n":      {{"one more than 20 byt", true}, {"x", false}},
		strings.Repeat("y", 100) + "\nz\n": {{strings.Repeat("y", 20), true}, {"z", false}},
		strings.Repeat("y", 100):           {{strings.Repeat("y", 20), true}},
	}
	for input, want := range cases {
		r := bufio.NewReaderSize(strings.NewReader(input), 16) // smaller than a line
		var buf []byte
		var got []line
		for {
			text, cut, err := readLine(r, &buf, 20)
			if err != nil {
				require.Equal(t, io.EOF, err)
				break
			}
			got = append(got, line{string(text), cut})
		}
		require.Equal(t, want, got, "%q", input)
	}
}

func TestStderrIsMeteredByBytesPerSecond(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	m := newStderrMeter(now)
	line := make([]byte, 64<<10-1)
	kept := 0
	for range 100 {
		kept += len(m.line(line, now))
	}
	require.Equal(t, 16, kept, "the burst")
	require.Len(t, m.tail, stderrTail)
	got := m.line([]byte("later"), now.Add(time.Second))
	require.Len(t, got, 2)
	require.Equal(t, "[overwinter-runner: 84 lines of stderr left out]", string(got[0]))
	require.True(t, strings.HasSuffix(string(m.tail), "\nlater\n") || strings.HasSuffix(string(m.tail), "later\n"))
	require.Zero(t, m.dropped)
}
