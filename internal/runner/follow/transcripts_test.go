package follow

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// files is a directory of transcripts with the segments that a follower has sent.
type files struct {
	t   *testing.T
	dir string
}

func newFiles(t *testing.T) files {
	t.Helper()
	return files{t, t.TempDir()}
}

func (f files) path(name string) string { return filepath.Join(f.dir, name) }

func (f files) write(name, text string) {
	f.t.Helper()
	require.NoError(f.t, os.WriteFile(f.path(name), []byte(text), 0o600))
}

// poll returns the segments of one poll.
func (f files) poll(tr *Transcripts, strict bool) []runner.Segment {
	f.t.Helper()
	var got []runner.Segment
	require.NoError(f.t, tr.Poll([]string{f.path("*")}, strict, func(s *runner.Segment) error {
		c := *s
		c.Data = bytes.Clone(s.Data)
		got = append(got, c)
		return nil
	}))
	return got
}

func TestPollSendsNewBytes(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	tr := NewTranscripts(nil, NewVersions())
	require.Empty(t, f.poll(tr, false))
	f.write("a", "one\n")
	f.write("b", "")
	require.Equal(t, []runner.Segment{{Path: f.path("a"), Version: 1, Data: []byte("one\n")}}, f.poll(tr, false))
	require.Empty(t, f.poll(tr, false))
	f.write("a", "one\ntwo\n")
	f.write("b", strings.Repeat("x", runner.MaxSegment+1))
	got := f.poll(tr, false)
	require.Len(t, got, 3)
	require.Equal(t, runner.Segment{Path: f.path("a"), Version: 1, Offset: 4, Data: []byte("two\n")}, got[0])
	require.Len(t, got[1].Data, runner.MaxSegment)
	require.Equal(t, runner.Segment{Path: f.path("b"), Version: 1, Offset: runner.MaxSegment, Data: []byte("x")}, got[2])
}

func TestIrregularFilesAreSkipped(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	f.write("was", "one\n")
	tr := NewTranscripts(nil, NewVersions())
	require.Len(t, f.poll(tr, true), 1)
	require.NoError(t, os.Remove(f.path("was")))
	require.NoError(t, unix.Mkfifo(f.path("was"), 0o600)) // nothing writes to the FIFO, so opening it would block
	require.NoError(t, unix.Mkfifo(f.path("fifo"), 0o600))
	require.Empty(t, f.poll(tr, true))
	// A follower that starts at that position finds no regular file, and treats the file as
	// rewritten.
	v := NewVersions()
	tr = NewTranscripts([]transcript.Position{{Path: f.path("fifo"), Version: 1, Size: 4}}, v)
	require.Empty(t, f.poll(tr, true))
	require.EqualValues(t, 2, v.of(f.path("fifo")))
}

func TestChangeInMiddleIsFoundByStrictPoll(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	text := strings.Repeat("x", 3*edge)
	f.write("a", text)
	tr := NewTranscripts(nil, NewVersions())
	f.poll(tr, false)
	changed := text[:edge+edge/2] + "Y" + text[edge+edge/2+1:]
	f.write("a", changed)
	require.Empty(t, f.poll(tr, false), "a poll compares the ends alone")
	require.Equal(t, []runner.Segment{{Path: f.path("a"), Version: 2, Data: []byte(changed)}}, f.poll(tr, true))
}

// TestLinkContinuesWithPreviousHash checks that a link does not read data that the previous link
// has sent, and detects a change of that data between the two links. A restarted runner reads the
// data.
func TestLinkContinuesWithPreviousHash(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	text := strings.Repeat("x", 3*edge)
	f.write("a", text)
	v := NewVersions()
	f.poll(NewTranscripts(nil, v), false)
	stored := []transcript.Position{{Path: f.path("a"), Version: 1, Size: 3 * edge}}

	next := NewTranscripts(stored, v)
	require.Empty(t, f.poll(next, true))
	f.write("a", text+"more")
	require.Equal(t, []runner.Segment{{Path: f.path("a"), Version: 1, Offset: 3 * edge, Data: []byte("more")}}, f.poll(next, true))

	// The worker has not stored the last segment: the hash covers more than the worker has.
	require.Equal(t, []runner.Segment{{Path: f.path("a"), Version: 1, Offset: 3 * edge, Data: []byte("more")}}, f.poll(NewTranscripts(stored, v), true))

	stored[0].Size += 4
	changed := text[:edge+edge/2] + "Y" + text[edge+edge/2+1:] + "more"
	f.write("a", changed)
	require.Empty(t, f.poll(NewTranscripts(stored, NewVersions()), true), "a new runner has nothing to compare with")
	require.Equal(t, []runner.Segment{{Path: f.path("a"), Version: 2, Data: []byte(changed)}}, f.poll(NewTranscripts(stored, v), true))
}

// TestLinkContinuesWithDirectoriesOfPreviousLink checks that a link does not begin with a read of
// unchanged directories.
func TestLinkContinuesWithDirectoriesOfPreviousLink(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	f.write("a", "one\n")
	require.NoError(t, os.Chtimes(f.dir, time.Time{}, time.Now().Add(-time.Hour)))
	v := NewVersions()
	require.Len(t, f.poll(NewTranscripts(nil, v), false), 1)
	reads := v.expander.reads
	require.Len(t, f.poll(NewTranscripts(nil, v), false), 1)
	require.Equal(t, reads, v.expander.reads)
	f.write("b", "two\n")
	require.Len(t, f.poll(NewTranscripts(nil, v), false), 2)
}

func TestTranscriptOverItsLimitIsSentAgainOnlyOnceRewritten(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	f.write("a", "stored, more")
	tr := NewTranscripts([]transcript.Position{{Path: f.path("a"), Version: 4, Size: 6, Cut: true}}, NewVersions())
	require.Empty(t, f.poll(tr, true))
	f.write("a", "stored, more, and more")
	require.Empty(t, f.poll(tr, true))
	f.write("a", "new")
	require.Equal(t, []runner.Segment{{Path: f.path("a"), Version: 5, Data: []byte("new")}}, f.poll(tr, true))
}

// TestUnsentSegment checks a link that ends during a poll after it has sent a part. The
// next one begins at the worker's position, with a version that no worker has seen for other bytes.
func TestUnsentSegment(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	f.write("a", "one\n")
	v := NewVersions()
	first := NewTranscripts(nil, v)
	require.Len(t, f.poll(first, false), 1)
	f.write("a", "rewritten\n")
	gone := errors.New("the link has ended")
	require.ErrorIs(t, first.Poll([]string{f.path("*")}, false, func(*runner.Segment) error { return gone }), gone)
	require.Len(t, f.poll(first, false), 1, "unsent changes count as new")

	second := NewTranscripts([]transcript.Position{{Path: f.path("a"), Version: 1, Size: 4}}, v)
	require.Equal(t, []runner.Segment{{Path: f.path("a"), Version: 2, Data: []byte("rewritten\n")}}, f.poll(second, false))
}
