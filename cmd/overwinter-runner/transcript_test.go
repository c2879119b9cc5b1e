package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// store stores segments like the worker's database: a gap is an error, a new version replaces the
// old one.
type store map[string]*transcript.File

func (s store) add(t *testing.T, seg runner.Segment) {
	t.Helper()
	f := s[seg.Path]
	if f == nil || seg.Version > f.Version {
		f = &transcript.File{Path: seg.Path, Version: seg.Version}
		s[seg.Path] = f
	}
	require.Equal(t, f.Version, seg.Version)
	require.EqualValues(t, len(f.Data), seg.Offset, "a gap or a repetition in %s", seg.Path)
	f.Data = append(f.Data, seg.Data...)
}

func (s store) positions() []transcript.Position {
	var list []transcript.Position
	for _, f := range s {
		list = append(list, transcript.Position{Path: f.Path, Version: f.Version, Size: int64(len(f.Data))})
	}
	return list
}

// sync flushes a link and stores every segment that it has sent.
func (w *worker) sync(s store, id int64) {
	w.t.Helper()
	require.NoError(w.t, w.Flush(id))
	w.until(func(m runner.Message) bool { f, ok := m.(*runner.Flushed); return ok && f.ID == id })
	for _, m := range w.seen[w.stored:] {
		if seg, ok := m.(*runner.Segment); ok {
			s.add(w.t, *seg)
		}
	}
	w.stored = len(w.seen)
}

// agentFiles returns a launch of echo with transcripts below home.
func (b *sandbox) agentFiles(run string, known []transcript.Position) *worker {
	b.t.Helper()
	w := b.attach(runner.Hello{Run: run, Known: known})
	launch := b.shell(echo)
	launch.Transcripts = []string{filepath.Join(b.paths.Home, "log", "**", "*.jsonl"), filepath.Join(b.paths.Home, "one.txt")}
	require.NoError(b.t, w.Start(runner.Start{Launch: launch, Input: []byte("go\n")}))
	w.delivery(runner.Delivered)
	return w
}

func (b *sandbox) write(name, text string, flag int) string {
	b.t.Helper()
	path := filepath.Join(b.paths.Home, name)
	require.NoError(b.t, os.MkdirAll(filepath.Dir(path), 0o755))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|flag, 0o644)
	require.NoError(b.t, err)
	_, err = f.WriteString(text)
	require.NoError(b.t, err)
	require.NoError(b.t, f.Close())
	return path
}

func TestHandsOverTranscriptsAsTheyGrow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.agentFiles("run_1", nil)
	s := store{}
	first := b.write("log/a.jsonl", "one\n", os.O_APPEND)
	m := w.until(func(m runner.Message) bool { _, ok := m.(*runner.Segment); return ok }).(*runner.Segment)
	require.Equal(t, &runner.Segment{Path: first, Version: 1, Data: []byte("one\n")}, m, "it was not requested")

	deep := b.write("log/x/y/b.jsonl", "deep\n", os.O_APPEND)
	big := b.write("one.txt", strings.Repeat("0123456789", 300_000), os.O_APPEND)
	b.write("log/other.txt", "not a transcript", os.O_APPEND)
	b.write("log/a.jsonl", "two\n", os.O_APPEND)
	w.sync(s, 7)
	require.Len(t, s, 3)
	require.Equal(t, "one\ntwo\n", string(s[first].Data))
	require.Equal(t, "deep\n", string(s[deep].Data))
	require.Len(t, s[big].Data, 3_000_000)
}

func TestOnlyMissingTranscriptIsSent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := b.write("one.txt", "0123456789", os.O_APPEND)
	s := store{path: {Path: path, Version: 3, Data: []byte("!!!!")}} // the runner cannot know what is stored
	w := b.agentFiles("run_1", s.positions())
	w.sync(s, 1)
	require.Equal(t, "!!!!456789", string(s[path].Data))
	require.EqualValues(t, 3, s[path].Version)
}

func TestRewrittenTranscriptGetsNewVersion(t *testing.T) {
	t.Parallel()
	rewrites := map[string]func(b *sandbox, path string) string{
		"shorter": func(b *sandbox, path string) string {
			b.write("one.txt", "new\n", os.O_TRUNC)
			return "new\n"
		},
		"longer": func(b *sandbox, path string) string {
			text := "another beginning" + strings.Repeat("y", 20_000)
			b.write("one.txt", text, os.O_TRUNC)
			return text
		},
		"same length": func(b *sandbox, path string) string {
			text := "X" + strings.Repeat("x", 9_999)
			b.write("one.txt", text, 0)
			return text
		},
		"middle of a replaced file": func(b *sandbox, path string) string {
			text := strings.Repeat("x", 5_000) + "Y" + strings.Repeat("x", 4_999)
			require.NoError(b.t, os.Rename(b.write("new", text, os.O_TRUNC), path))
			return text
		},
		"replaced by a link cut short": func(b *sandbox, path string) string {
			require.NoError(b.t, os.Remove(path))
			b.write("one.txt", "z", os.O_APPEND)
			return "z"
		},
	}
	for name, rewrite := range rewrites {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			path := b.write("one.txt", strings.Repeat("x", 10_000), os.O_APPEND)
			w := b.agentFiles("run_1", nil)
			s := store{}
			w.sync(s, 1)
			require.Len(t, s[path].Data, 10_000)
			want := rewrite(b, path)
			w.sync(s, 2)
			require.Equal(t, want, string(s[path].Data))
			require.EqualValues(t, 2, s[path].Version)
			b.write("one.txt", "more", os.O_APPEND)
			w.sync(s, 3)
			require.Equal(t, want+"more", string(s[path].Data))
			require.EqualValues(t, 2, s[path].Version)
		})
	}
}

func TestReplacedFileWithSameBeginningIsAppendedTo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := b.write("one.txt", "one\n", os.O_APPEND)
	w := b.agentFiles("run_1", nil)
	s := store{}
	w.sync(s, 1)
	require.NoError(t, os.Rename(b.write("new", "one\ntwo\n", os.O_TRUNC), path))
	w.sync(s, 2)
	require.Equal(t, &transcript.File{Path: path, Version: 1, Data: []byte("one\ntwo\n")}, s[path])
}

func TestUnstoredRewriteIsResent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := b.write("one.txt", "one\n", os.O_APPEND)
	w := b.agentFiles("run_1", nil)
	s := store{}
	w.sync(s, 1)
	b.write("one.txt", "other and longer\n", os.O_TRUNC)
	require.NoError(t, w.Flush(2)) // this worker dies before it has stored the segments
	w.until(func(m runner.Message) bool { _, ok := m.(*runner.Flushed); return ok })

	w = b.attach(runner.Hello{Run: "run_1", Known: s.positions()})
	w.sync(s, 3)
	require.Equal(t, "other and longer\n", string(s[path].Data))
}

func TestTranscriptOlderThanStoredOneIsSentWhole(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := b.write("one.txt", "old\n", os.O_APPEND) // an older snapshot was restored
	s := store{path: {Path: path, Version: 1, Data: []byte("old\nnewer\n")}}
	w := b.agentFiles("run_1", s.positions())
	w.sync(s, 1)
	require.Equal(t, "old\n", string(s[path].Data))
	require.EqualValues(t, 2, s[path].Version)
}

func TestPutWritesFilesWhole(t *testing.T) {
	t.Parallel()
	b := setup(t)
	big := bytes.Repeat([]byte("transcript\n"), 400_000)
	files := []transcript.File{
		{Path: filepath.Join(b.paths.Home, ".agent", "deep", "a.jsonl"), Data: big},
		{Path: filepath.Join(b.paths.Home, "empty.jsonl")},
		{Path: b.write("old.jsonl", "old", os.O_APPEND), Data: []byte("new")},
	}
	var stdin bytes.Buffer
	put := make([]runner.PutFile, len(files))
	for i, f := range files {
		put[i] = runner.PutFile{Path: f.Path, Size: int64(len(f.Data)), Content: func(yield func([]byte, error) bool) { yield(f.Data, nil) }}
	}
	require.NoError(t, runner.WritePut(&stdin, put))
	whole := bytes.Clone(stdin.Bytes())
	done, err := runner.ParsePut(b.ok(runner.Exec{Argv: b.paths.Put(), Stdin: whole}))
	require.NoError(t, err)
	require.Equal(t, runner.Written{Files: 3, Bytes: int64(len(big)) + 3}, done)
	for _, f := range files {
		data, err := os.ReadFile(f.Path)
		require.NoError(t, err)
		require.True(t, bytes.Equal(f.Data, data), f.Path)
		info, err := os.Stat(f.Path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
	entries, err := os.ReadDir(filepath.Join(b.paths.Home, ".agent", "deep"))
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing temporary is left")

	// Truncated in the middle of the first file, so the old file must remain.
	require.NoError(t, os.WriteFile(files[0].Path, []byte("precious"), 0o600))
	_, stderr, code := b.run(runner.Exec{Argv: b.paths.Put(), Stdin: whole[:len(whole)/2]})
	require.Equal(t, runner.ExitFailed, code)
	require.Contains(t, stderr, "unexpected EOF")
	data, err := os.ReadFile(files[0].Path)
	require.NoError(t, err)
	require.Equal(t, "precious", string(data))
}
