package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/leaktest"
	"github.com/overwinter-dev/overwinter/internal/runner"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func setup(t *testing.T) (*Journal, string) {
	t.Helper()
	dir := t.TempDir()
	j, err := Create(dir, "run_1", Delivering)
	require.NoError(t, err)
	t.Cleanup(func() { _ = j.Close() })
	return j, dir
}

func reopen(t *testing.T, dir string) *Journal {
	t.Helper()
	j, err := Open(dir, "run_1")
	require.NoError(t, err)
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func fill(t *testing.T, j *Journal, n int) {
	t.Helper()
	for i := range n {
		no, err := j.Append(runner.Stdout, time.Unix(int64(i), 5), []byte("line "+strconv.Itoa(i)), i%3 == 0)
		require.NoError(t, err)
		require.EqualValues(t, i, no)
	}
}

// read returns the existing frames, starting with number from.
func read(t *testing.T, j *Journal, from int64) []runner.Frame {
	t.Helper()
	r, err := j.Read(from)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var list []runner.Frame
	for {
		f, _, err := r.Next(ctx)
		if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) {
			return list
		}
		require.NoError(t, err)
		list = append(list, f)
	}
}

func TestAppendedFramesAreRead(t *testing.T) {
	t.Parallel()
	j, dir := setup(t)
	require.NoError(t, j.Mark(Delivering))
	fill(t, j, 10)
	require.NoError(t, j.Mark(Delivered))
	_, err := j.Append(runner.Exit, time.Unix(9, 9), []byte("{}"), false)
	require.NoError(t, err)
	for _, j := range []*Journal{j, reopen(t, dir)} {
		require.Equal(t, Status{Mark: Delivered, Frames: 11, Exited: true, Delivered: true}, j.Status())
		frames := read(t, j, 3)
		require.Len(t, frames, 8)
		require.Equal(t, runner.Frame{No: 3, Stream: runner.Stdout, At: time.Unix(3, 5).UTC(), Data: []byte("line 3"), Truncated: true}, frames[0])
		require.Equal(t, runner.Exit, frames[7].Stream)
		require.Empty(t, read(t, j, 11))
		require.Empty(t, read(t, j, 99))
	}
}

func TestReopenedJournalContinues(t *testing.T) {
	t.Parallel()
	j, dir := setup(t)
	fill(t, j, 3)
	require.NoError(t, j.Close())
	j = reopen(t, dir)
	no, err := j.Append(runner.Stderr, time.Now(), []byte("more"), false)
	require.NoError(t, err)
	require.EqualValues(t, 3, no)
	require.Len(t, read(t, j, 0), 4)
}

func TestNothingIsAppendedAfterFinalMark(t *testing.T) {
	t.Parallel()
	for _, final := range []Mark{Cut, Closed, Sealed} {
		t.Run(fmt.Sprint(final), func(t *testing.T) {
			t.Parallel()
			j, dir := setup(t)
			fill(t, j, 1)
			require.NoError(t, j.Mark(final))
			require.NoError(t, j.Mark(final))
			for _, j := range []*Journal{j, reopen(t, dir)} {
				_, err := j.Append(runner.Stdout, time.Now(), nil, false)
				require.ErrorIs(t, err, ErrFinal)
				require.ErrorIs(t, j.Mark(Delivered), ErrFinal)
				r, err := j.Read(0)
				require.NoError(t, err)
				_, more, err := r.Next(t.Context())
				require.NoError(t, err)
				require.False(t, more)
				_, _, err = r.Next(t.Context())
				require.ErrorIs(t, err, io.EOF)
			}
		})
	}
}

func TestReaderWaitsForWriter(t *testing.T) {
	t.Parallel()
	j, _ := setup(t)
	const total = 5000
	var readers sync.WaitGroup
	for from := range int64(4) {
		readers.Go(func() {
			r, err := j.Read(from)
			if err != nil {
				t.Error(err)
				return
			}
			for want := from; want < total; want++ {
				f, _, err := r.Next(t.Context())
				if err != nil || f.No != want || string(f.Data) != "line "+strconv.Itoa(int(want)) {
					t.Errorf("frame %d: got %d %q %v", want, f.No, f.Data, err)
					return
				}
			}
			if _, _, err := r.Next(t.Context()); !errors.Is(err, io.EOF) {
				t.Errorf("after the last frame: %v", err)
			}
		})
	}
	fill(t, j, total)
	require.NoError(t, j.Sync())
	require.NoError(t, j.Mark(Sealed))
	readers.Wait()
}

func TestTornTailIsTruncatedAtEveryByte(t *testing.T) {
	t.Parallel()
	j, dir := setup(t)
	require.NoError(t, j.Mark(Delivering))
	fill(t, j, 4)
	whole, err := os.ReadFile(filepath.Join(dir, "run_1.log"))
	require.NoError(t, err)
	var ends []int64 // of the frames
	_, err = scan(bytes.NewReader(whole), func(offset int64, r record) error {
		ends = append(ends, offset)
		return nil
	})
	require.NoError(t, err)
	ends = append(ends[2:], int64(len(whole)))
	for size := range len(whole) + 1 {
		torn := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(torn, "run_1.log"), whole[:size], 0o600))
		want := 0
		for _, end := range ends {
			if int64(size) >= end {
				want++
			}
		}
		j := reopen(t, torn)
		require.EqualValues(t, want, j.Status().Frames, "torn at %d", size)
		require.Len(t, read(t, j, 0), want)
		no, err := j.Append(runner.Stdout, time.Now(), []byte("next"), false)
		require.NoError(t, err)
		require.EqualValues(t, want, no)
		require.NoError(t, j.Close())
		require.Len(t, read(t, reopen(t, torn), 0), want+1)
	}
}

func TestDamagedRecordEndsJournal(t *testing.T) {
	t.Parallel()
	j, dir := setup(t)
	fill(t, j, 3)
	path := filepath.Join(dir, "run_1.log")
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	whole[len(whole)-12] ^= 1 // in the last record
	require.NoError(t, os.WriteFile(path, whole, 0o600))
	require.Len(t, read(t, reopen(t, dir), 0), 2)
}

func TestReadsFromAnyFrame(t *testing.T) {
	t.Parallel()
	j, dir := setup(t)
	const total = 3*indexFrames + 5
	long := bytes.Repeat([]byte("x"), indexBytes)
	for i := range total {
		data := []byte("line " + strconv.Itoa(i))
		if i%50 == 7 {
			data = append(data, long...)
		}
		_, err := j.Append(runner.Stdout, time.Unix(1, 0), data, false)
		require.NoError(t, err)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run_1.idx"), make([]byte, 400), 0o600)) // of an earlier version
	for _, j := range []*Journal{j, reopen(t, dir)} {
		require.Less(t, len(j.index.entries), total/indexFrames+2*total/50+3)
		for from := range int64(total) {
			r, err := j.Read(from)
			require.NoError(t, err)
			f, _, err := r.Next(t.Context())
			require.NoError(t, err)
			require.Equal(t, from, f.No)
			require.True(t, bytes.HasPrefix(f.Data, []byte("line "+strconv.Itoa(int(from)))))
		}
	}
}

// TestNewLineIsNotReadFromFile checks that a waiting reader gets a line from memory, regardless of
// earlier lines.
func TestNewLineIsNotReadFromFile(t *testing.T) {
	t.Parallel()
	j, _ := setup(t)
	r, err := j.Read(0)
	require.NoError(t, err)
	log := j.log
	writeOnly, err := os.OpenFile(log.Name(), os.O_WRONLY, 0)
	require.NoError(t, err)
	j.log = writeOnly
	for i, n := range []int{10, 1000, maxNewest - 100, 50, maxNewest / 2, 1, 0} {
		_, err := j.Append(runner.Stdout, time.Now(), make([]byte, n), false)
		require.NoError(t, err)
		f, more, err := r.Next(t.Context())
		require.NoError(t, err, "line %d", i)
		require.Len(t, f.Data, n)
		require.False(t, more)
		require.LessOrEqual(t, len(j.newest), 2*maxNewest)
	}
	_, err = j.Append(runner.Stdout, time.Now(), make([]byte, 2*maxNewest), false)
	require.NoError(t, err)
	_, _, err = r.Next(t.Context())
	require.Error(t, err, "a long line is read from the file")
	require.NoError(t, writeOnly.Close())
	j.log = log
}

// TestReaderBuffersByNeed checks that a reader has a large buffer only while it is far behind the writer.
func TestReaderBuffersByNeed(t *testing.T) {
	t.Parallel()
	j, _ := setup(t)
	line := bytes.Repeat([]byte("x"), 700)
	write := func() {
		_, err := j.Append(runner.Stdout, time.Now(), line, false)
		require.NoError(t, err)
	}
	follower, err := j.Read(0)
	require.NoError(t, err)
	next := func(r *Reader, no int64) {
		f, _, err := r.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, no, f.No)
		require.Equal(t, line, f.Data)
	}
	const first, all = 200, 400
	for i := range int64(first) {
		write()
		next(follower, i)
	}
	require.Equal(t, readNear, follower.r.Size())
	write()
	write()
	next(follower, first) // the other line is in its buffer
	for range all - first - 2 {
		write()
	}
	for i := range int64(all - first - 1) {
		next(follower, first+1+i)
	}
	require.Equal(t, readAhead, follower.r.Size())
	late, err := j.Read(0)
	require.NoError(t, err)
	for i := range int64(all) {
		next(late, i)
	}
	require.Equal(t, readAhead, late.r.Size())
}

func TestFailedAppendLeavesNothing(t *testing.T) {
	t.Parallel()
	j, dir := setup(t)
	fill(t, j, 2)
	log := j.log
	readOnly, err := os.Open(log.Name())
	require.NoError(t, err)
	j.log = readOnly
	_, err = j.Append(runner.Stdout, time.Now(), []byte("lost"), false)
	require.Error(t, err)
	require.EqualValues(t, 2, j.Status().Frames)
	require.NoError(t, readOnly.Close())
	j.log = log
	no, err := j.Append(runner.Stdout, time.Now(), []byte("kept"), false)
	require.NoError(t, err)
	require.EqualValues(t, 2, no)
	require.Len(t, read(t, reopen(t, dir), 0), 3)
}

func TestRunNameIsNotPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, run := range []string{"", "..", "a/b", "a.b", "x\x00"} {
		_, err := Create(dir, run, Delivering)
		require.Error(t, err)
		_, err = Open(dir, run)
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	_, err := Open(dir, "none")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestRunHasOneJournal(t *testing.T) {
	t.Parallel()
	_, dir := setup(t)
	_, err := Create(dir, "run_1", Delivering)
	require.ErrorIs(t, err, fs.ErrExist)
}

func FuzzOpen(f *testing.F) {
	dir := f.TempDir()
	j, err := Create(dir, "run_1", Delivering)
	require.NoError(f, err)
	_, err = j.Append(runner.Stdout, time.Unix(1, 1), []byte("hello"), true)
	require.NoError(f, err)
	require.NoError(f, j.Mark(Delivered))
	require.NoError(f, j.Close())
	whole, err := os.ReadFile(filepath.Join(dir, "run_1.log"))
	require.NoError(f, err)
	f.Add(whole)
	f.Add(whole[:len(whole)-3])
	f.Add([]byte(magic))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, log []byte) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "run_1.log"), log, 0o600))
		j, err := Open(dir, "run_1")
		require.NoError(t, err) // readable records are returned even if the rest of the file is damaged
		frames := read(t, j, 0)
		require.EqualValues(t, len(frames), j.Status().Frames)
		require.NoError(t, j.Close())
		j, err = Open(dir, "run_1")
		require.NoError(t, err)
		require.Equal(t, frames, read(t, j, 0))
		require.NoError(t, j.Close())
	})
}

func BenchmarkAppend(b *testing.B) {
	j, err := Create(b.TempDir(), "run_1", Delivering)
	require.NoError(b, err)
	line := make([]byte, 200)
	for b.Loop() {
		if _, err := j.Append(runner.Stdout, time.Now(), line, false); err != nil {
			b.Fatal(err)
		}
	}
	require.NoError(b, j.Close())
}
