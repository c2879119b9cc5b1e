package cli

import (
	"bufio"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKeysEditLine(t *testing.T) {
	t.Parallel()
	for keys, want := range map[string]string{
		"hello": "hello", "helo\x7flo": "hello", "grün\x7f\x7fau": "grau", "\x7fa": "a", "two words\x17x": "two x", "two words  \x17": "two ", "gone\x15left": "left",
		"a\tb": "a b", "a\x00\x01b": "ab", "some\x04": "some",
	} {
		k, text := &keyboard{}, ""
		for _, key := range keys {
			var end bool
			text, _, end = k.take(key)
			require.False(t, end, keys)
		}
		require.Equal(t, want, text, "%q", keys)
		line, complete, _ := k.take('\n')
		require.True(t, complete)
		require.Equal(t, want, line)
		text, _, end := k.take(keyEnd)
		require.True(t, end, "the end of the input at an empty line")
		require.Empty(t, text)
	}
	k := &keyboard{}
	k.take('x')
	k.clear()
	line, _, _ := k.take('\n')
	require.Empty(t, line)
}

func TestArrowsAreSkipped(t *testing.T) {
	t.Parallel()
	for _, keys := range []string{"[A", "[1;5C", "OP", "x"} {
		in := bufio.NewReader(strings.NewReader(keys + "rest"))
		require.NoError(t, skipSequence(in))
		rest, err := in.ReadString('t')
		require.NoError(t, err)
		require.Equal(t, "rest", rest, keys)
	}
}
