package task

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
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

// content returns bytes without a period, so that a piece at a wrong offset is noticed.
func content(size int) []byte {
	p := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(p) // never fails
	return p
}

// write appends p in parts of n bytes.
func write(t *testing.T, o *Output, p []byte, n int) {
	t.Helper()
	for part := range slices.Chunk(p, n) {
		written, err := o.Write(part)
		require.NoError(t, err)
		require.Equal(t, len(part), written)
		require.LessOrEqual(t, cap(o.memory), inMemory, "the bound of the memory")
	}
}

func TestReadersFollowFromAnyOffset(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ size, part int }{
		"in memory":            {1000, 777},
		"just in memory":       {inMemory - 1, 1},
		"just in a file":       {inMemory, 1024},
		"in a file":            {10*inMemory + 100, 777},
		"in parts of a buffer": {4 * inMemory, inMemory},
		"in larger parts":      {8 * inMemory, inMemory + 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			o := newOutput(dir)
			want := content(c.size)
			var readers sync.WaitGroup
			for _, offset := range []int{0, 7, c.size / 2, c.size - 1} {
				readers.Go(func() {
					if got := follow(t, o, uint64(offset)); !bytes.Equal(want[offset:], got) {
						t.Errorf("from %d: got %d bytes, want %d", offset, len(got), len(want)-offset)
					}
				})
			}
			write(t, o, want, c.part)
			o.End()
			readers.Wait()
			require.Equal(t, c.size >= inMemory, o.file != nil, "the file is made when it is needed")
			border := int(o.stored)
			for _, offset := range []int{0, border - 1, border, border + 1, c.size - 1, c.size, c.size + 1} {
				if offset >= 0 {
					require.True(t, bytes.Equal(want[min(offset, c.size):], follow(t, o, uint64(offset))), "late reader from %d", offset)
				}
			}
			require.Empty(t, follow(t, o, math.MaxUint64))
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, entries, "the file has no name")
			require.NoError(t, o.Release())
			require.Empty(t, follow(t, o, 0))
		})
	}
}

// TestReadersAtDifferentPositions lets each reader wait after each piece until more has been
// written, so that some read from the file and some from memory while the output grows.
func TestReadersAtDifferentPositions(t *testing.T) {
	t.Parallel()
	want := content(40 * inMemory)
	o := newOutput(t.TempDir())
	var readers sync.WaitGroup
	for _, lag := range []int64{0, 100, inMemory / 2, inMemory, 5 * inMemory, int64(len(want))} {
		readers.Go(func() {
			at := 0
			err := o.Follow(t.Context(), 0, func(offset uint64, p []byte) error {
				if int(offset) != at || !bytes.Equal(want[at:at+len(p)], p) {
					t.Errorf("lag %d: wrong data at %d, want offset %d", lag, offset, at)
				}
				at += len(p)
				var none []byte
				for {
					_, ended, grown, err := o.read(min(int64(at)+lag, int64(len(want))), &none)
					if err != nil || ended || grown == nil {
						return err
					}
					<-grown
				}
			})
			if err != nil || at != len(want) {
				t.Errorf("lag %d: ended at %d of %d: %v", lag, at, len(want), err)
			}
		})
	}
	write(t, o, want, 777)
	o.End()
	readers.Wait()
}

func TestPieceIsValidWhileOutputGrows(t *testing.T) {
	t.Parallel()
	want := content(8 * inMemory)
	o := newOutput(t.TempDir())
	write(t, o, want[:inMemory-1000], 1024)
	taken, grown := make(chan struct{}), make(chan struct{})
	var got bytes.Buffer
	var reader sync.WaitGroup
	reader.Go(func() {
		first := true
		err := o.Follow(t.Context(), 0, func(_ uint64, p []byte) error {
			if first {
				first = false
				close(taken)
				<-grown
			}
			got.Write(p)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-taken
	write(t, o, want[inMemory-1000:], 777)
	o.End()
	close(grown)
	reader.Wait()
	require.True(t, bytes.Equal(want, got.Bytes()))
}

// TestIdleOutputIsSmall checks that the memory grows with its content, since most outputs are
// empty or short.
func TestIdleOutputIsSmall(t *testing.T) {
	t.Parallel()
	o := newOutput(t.TempDir())
	require.Zero(t, cap(o.memory))
	write(t, o, content(100), 100)
	require.LessOrEqual(t, cap(o.memory), firstBuffer)
	write(t, o, content(inMemory), 1024)
	require.LessOrEqual(t, cap(o.memory), 2048, "what is in the file is not in memory")
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
	_, err := o.Write(make([]byte, maxUnstored+1))
	require.Error(t, err)
	o.End()
	require.Error(t, o.Follow(t.Context(), 0, func(uint64, []byte) error { return nil }))
}

// TestFullDiskKeepsWhatWasAccepted checks that readers get all data whose write succeeded, then the
// reason why the rest is missing.
func TestFullDiskKeepsWhatWasAccepted(t *testing.T) {
	t.Parallel()
	for _, size := range []int{777, inMemory} {
		full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
		require.NoError(t, err)
		o := newOutput(t.TempDir())
		o.file = full
		want := content(2 * maxUnstored)
		accepted := 0
		for part := range slices.Chunk(want, size) {
			n, err := o.Write(part)
			accepted += n
			if err != nil {
				require.ErrorIs(t, err, syscall.ENOSPC)
				break
			}
		}
		require.Equal(t, maxUnstored/size*size, accepted)
		require.LessOrEqual(t, cap(o.memory), maxUnstored)
		_, err = o.Write([]byte("x"))
		require.ErrorIs(t, err, syscall.ENOSPC, "a gap is not continued")
		o.End()
		var got bytes.Buffer
		err = o.Follow(t.Context(), 0, func(_ uint64, p []byte) error {
			got.Write(p)
			return nil
		})
		require.ErrorIs(t, err, syscall.ENOSPC)
		require.True(t, bytes.Equal(want[:accepted], got.Bytes()))
		require.NoError(t, o.Release())
	}
}

// TestOutputIsStoredWhenDiskHasSpaceAgain checks that a full disk loses nothing while the memory has
// space.
func TestOutputIsStoredWhenDiskHasSpaceAgain(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "missing")
	o := newOutput(dir)
	want := content(2 * maxUnstored)
	for part := range slices.Chunk(want[:4*inMemory], 777) {
		_, err := o.Write(part)
		require.NoError(t, err)
	}
	require.NoError(t, os.Mkdir(dir, 0o700))
	write(t, o, want[4*inMemory:], 777)
	o.End()
	require.True(t, bytes.Equal(want, follow(t, o, 0)))
	require.NoError(t, o.Release())
}

// BenchmarkOutput appends lines to an output whose file exists. In "keeps up", a reader receives
// each line before the next one is written.
func BenchmarkOutput(b *testing.B) {
	line := bytes.Repeat([]byte("x"), 300)
	fill := func(b *testing.B) *Output {
		b.Helper()
		o := newOutput(b.TempDir())
		for range 10 {
			_, err := o.Write(make([]byte, 32<<10))
			require.NoError(b, err)
		}
		return o
	}
	write := func(b *testing.B, o *Output) {
		b.Helper()
		if _, err := o.Write(line); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("no reader", func(b *testing.B) {
		o := fill(b)
		b.ReportAllocs()
		for b.Loop() {
			write(b, o)
		}
		require.NoError(b, o.Release())
	})
	b.Run("reader keeps up", func(b *testing.B) {
		o := fill(b)
		received := make(chan int)
		var reader sync.WaitGroup
		reader.Go(func() {
			_ = o.Follow(b.Context(), 320<<10, func(_ uint64, p []byte) error {
				received <- len(p)
				return nil
			})
		})
		b.ReportAllocs()
		for b.Loop() {
			write(b, o)
			require.Equal(b, len(line), <-received)
		}
		o.End()
		reader.Wait()
		require.NoError(b, o.Release())
	})
}
