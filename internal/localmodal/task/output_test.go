package task

import (
	"bytes"
	"context"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func follow(t *testing.T, o *Output, offset uint64) []byte {
	t.Helper()
	var got bytes.Buffer
	at := offset
	err := o.Follow(t.Context(), offset, func(offset uint64, p []byte) error {
		require.Equal(t, at, offset)
		at += uint64(len(p))
		got.Write(p)
		return nil
	})
	require.NoError(t, err)
	return got.Bytes()
}

func TestReadersFollowFromAnyOffset(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"in memory": 1000, "in a file": 3 * inMemory} {
		dir := t.TempDir()
		o := newOutput(dir)
		want := bytes.Repeat([]byte("0123456789"), size/10)
		var readers sync.WaitGroup
		for _, offset := range []int{0, 7, size / 2} {
			readers.Go(func() {
				if got := follow(t, o, uint64(offset)); !bytes.Equal(want[offset:], got) {
					t.Errorf("%s, from %d: got %d bytes, want %d", name, offset, len(got), len(want)-offset)
				}
			})
		}
		for rest := want; len(rest) > 0; {
			n := min(len(rest), 777)
			_, err := o.Write(rest[:n])
			require.NoError(t, err)
			rest = rest[n:]
		}
		o.End()
		readers.Wait()
		require.True(t, bytes.Equal(want, follow(t, o, 0)), "late reader, %s", name)
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, entries, "the file has no name")
		require.NoError(t, o.Release())
		require.Empty(t, follow(t, o, 0))
	}
}

func TestReaderEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := newOutput(t.TempDir()).Follow(ctx, 0, func(uint64, []byte) error { return nil })
	require.ErrorIs(t, err, context.Canceled)
}

func TestUnstorableOutputIsError(t *testing.T) {
	t.Parallel()
	o := newOutput("/nowhere/at/all")
	_, err := o.Write(make([]byte, inMemory+1))
	require.Error(t, err)
	o.End()
	require.Error(t, o.Follow(t.Context(), 0, func(uint64, []byte) error { return nil }))
}
