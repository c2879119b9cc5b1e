package portable_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/portable"
)

// whole returns an archive with an entry of each kind.
func whole(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	w := portable.NewWriter(&out)
	require.NoError(t, w.Repository(3, strings.NewReader("git")))
	require.NoError(t, w.File("dir/a.txt", 0o755, 5, strings.NewReader("hello")))
	require.NoError(t, w.Link("dir/b", "a.txt"))
	require.NoError(t, w.AgentFile("/root/.agent/log.jsonl", 2, strings.NewReader("{}")))
	require.NoError(t, w.Conversation(0, strings.NewReader("")))
	require.NoError(t, w.Close(portable.Manifest{MemoryID: "m", Git: &portable.Git{Head: strings.Repeat("a", 40), Branch: "main"}, Deleted: []string{"gone"}}))
	return out.Bytes()
}

func drop(portable.Entry, io.Reader) error { return nil }

func TestArchiveRoundTrip(t *testing.T) {
	t.Parallel()
	content := map[string]string{}
	m, err := portable.Read(bytes.NewReader(whole(t)), func(e portable.Entry, r io.Reader) error {
		data, err := io.ReadAll(r)
		content[e.Name] = string(data)
		return err
	})
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"repository.bundle": "git", "workspace/dir/a.txt": "hello", "workspace/dir/b": "a.txt", "agent/0": "{}", "conversation.jsonl": "",
	}, content)
	require.Len(t, m.Entries, 5)
	require.Equal(t, "/root/.agent/log.jsonl", m.Entries[3].Path)
	require.EqualValues(t, 0o755, m.Entries[1].Mode)
	require.Equal(t, []string{"gone"}, m.Deleted)
}

func TestWorkspaceOfManyFilesLeavesRoomForAgents(t *testing.T) {
	t.Parallel()
	w := portable.NewWriter(io.Discard)
	for n := range portable.MaxWorkspaceEntries {
		require.NoError(t, w.File(strconv.Itoa(n), 0o644, 0, strings.NewReader("")))
	}
	require.ErrorIs(t, w.File("more", 0o644, 0, strings.NewReader("")), portable.ErrFull)
	require.ErrorIs(t, w.Link("link", "0"), portable.ErrFull)
	require.NoError(t, w.AgentFile("/root/.agent/log.jsonl", 2, strings.NewReader("{}")))
	require.NoError(t, w.Close(portable.Manifest{}))
}

func TestPartialArchiveIsRefused(t *testing.T) {
	t.Parallel()
	data := whole(t)
	for n := range len(data) {
		_, err := portable.Read(bytes.NewReader(data[:n]), drop)
		_, ok := errors.AsType[*portable.InvalidError](err)
		require.True(t, ok, "%d of %d bytes: %v", n, len(data), err)
	}
	_, err := portable.Read(bytes.NewReader(append(data, 0)), drop)
	require.ErrorContains(t, err, "after its end")
}

func TestDamagedArchiveIsRefused(t *testing.T) {
	t.Parallel()
	data := whole(t)
	for n := 10; n < len(data); n++ { // the header of gzip has unused fields
		bad := bytes.Clone(data)
		bad[n] ^= 0x55
		_, err := portable.Read(bytes.NewReader(bad), drop)
		require.Error(t, err, "byte %d", n)
	}
}

// piece is an entry of a forged archive.
type piece struct {
	header tar.Header
	data   string
}

func file(name, data string) piece { return piece{tar.Header{Name: name, Mode: 0o644}, data} }

// forge returns an archive of entries with a matching manifest, unless change modifies it.
func forge(t *testing.T, change func(*portable.Manifest), entries ...piece) []byte {
	t.Helper()
	m := portable.Manifest{Format: portable.Format, Version: portable.Version}
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
	for _, p := range entries {
		p.header.Size = int64(len(p.data))
		content := p.data
		e := portable.Entry{Name: p.header.Name, Link: p.header.Linkname, Size: p.header.Size}
		if p.header.Linkname != "" {
			content = p.header.Linkname
		}
		if strings.HasPrefix(e.Name, "agent/") {
			e.Path = "/root/" + e.Name
		}
		sum := sha256.Sum256([]byte(content))
		e.SHA256 = hex.EncodeToString(sum[:])
		require.NoError(t, w.WriteHeader(&p.header))
		_, err := w.Write([]byte(p.data))
		require.NoError(t, err)
		m.Entries = append(m.Entries, e)
	}
	if change != nil {
		change(&m)
	}
	data, err := json.Marshal(m)
	require.NoError(t, err)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "manifest.json", Size: int64(len(data)), Mode: 0o644}))
	_, err = w.Write(data)
	require.NoError(t, err)
	require.NoError(t, errors.Join(w.Close(), zip.Close()))
	return out.Bytes()
}

func TestHostileArchivesAreRefused(t *testing.T) {
	t.Parallel()
	_, err := portable.Read(bytes.NewReader(forge(t, nil, file("repository.bundle", "x"), file("workspace/a", "y"))), drop)
	require.NoError(t, err)
	link := func(name, to string) piece {
		return piece{header: tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}}
	}
	for want, entries := range map[string][]piece{
		"within the workspace":          {file("workspace/../../etc/passwd", "x")},
		"must be relative, clean":       {file("workspace//etc/passwd", "x")},
		"git's own directory":           {file("workspace/.git/hooks/post-checkout", "x")},
		"directory (case)":              {file("workspace/sub/.GIT/config", "x")},
		"leads out of the workspace":    {link("workspace/a", "/etc/passwd")},
		"leads out (relative)":          {link("workspace/dir/a", "../../x")},
		"leads out (git)":               {link("workspace/a", ".git/hooks")},
		"below \"a\"":                   {link("workspace/a", "b"), file("workspace/a/b", "x")},
		"below \"d\"":                   {file("workspace/d/e", "x"), link("workspace/d", "b")},
		"neither a file nor a link":     {{header: tar.Header{Typeflag: tar.TypeLink, Name: "workspace/a", Linkname: "workspace/b"}}},
		"neither a file (device)":       {{header: tar.Header{Typeflag: tar.TypeChar, Name: "workspace/a"}}},
		"neither a file (link outside)": {link("agent/0", "x")},
		"twice":                         {file("workspace/a", "x"), file("workspace/a", "y")},
		"unknown entry":                 {file("other", "x")},
		"unknown entry (agent)":         {file("agent/../x", "x")},
		"not in its place":              {file("workspace/a", "x"), file("repository.bundle", "y")},
	} {
		want, _, _ = strings.Cut(want, " (")
		_, err := portable.Read(bytes.NewReader(forge(t, nil, entries...)), drop)
		require.ErrorContains(t, err, want, "%v", entries)
		_, ok := errors.AsType[*portable.InvalidError](err)
		require.True(t, ok)
	}
	a := file("workspace/a", "x")
	for want, change := range map[string]func(*portable.Manifest){
		"its SHA-256 is another one": func(m *portable.Manifest) { m.Entries[0].SHA256 = strings.Repeat("0", 64) },
		"its manifest says 9":        func(m *portable.Manifest) { m.Entries[0].Size = 9 },
		"lists 0 entries":            func(m *portable.Manifest) { m.Entries = nil },
		"lists \"workspace/b\"":      func(m *portable.Manifest) { m.Entries[0].Name = "workspace/b" },
		"the path":                   func(m *portable.Manifest) { m.Entries[0].Path = "/root/x" },
		"format must be":             func(m *portable.Manifest) { m.Format = "zip" },
		"version 2 is not known":     func(m *portable.Manifest) { m.Version = 2 },
		"deleted":                    func(m *portable.Manifest) { m.Deleted = []string{"../x"} },
		"git.head":                   func(m *portable.Manifest) { m.Git = &portable.Git{Head: "--upload-pack=x"} },
		"git.branch":                 func(m *portable.Manifest) { m.Git = &portable.Git{Branch: "-f"} },
	} {
		_, err := portable.Read(bytes.NewReader(forge(t, change, a)), drop)
		require.ErrorContains(t, err, want)
	}
	for _, path := range []string{"relative", "/root/../etc/x", "/"} {
		_, err := portable.Read(bytes.NewReader(forge(t, func(m *portable.Manifest) { m.Entries[0].Path = path }, file("agent/0", "x"))), drop)
		require.ErrorContains(t, err, "must be absolute and clean")
	}
}

func TestDecompressionBombIsNotReadToEnd(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
	const size = 4 << 30
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "workspace/a", Size: size, Mode: 0o644}))
	_, err := io.CopyN(w, zeros{}, 8<<20) // the rest would be refused as well
	require.NoError(t, err)
	require.NoError(t, zip.Close())
	_, err = portable.Read(&out, func(_ portable.Entry, r io.Reader) error {
		_, err := io.Copy(io.Discard, r)
		return err
	})
	require.ErrorContains(t, err, "more than 536870912 bytes")
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestWriterAppliesLimitsOfReader(t *testing.T) {
	t.Parallel()
	w := portable.NewWriter(io.Discard)
	require.Error(t, w.File("../a", 0o644, 0, strings.NewReader("")))
	require.Error(t, w.File(".git/config", 0o644, 0, strings.NewReader("")))
	require.Error(t, w.Link("a", "../b"))
	require.Error(t, w.AgentFile("a", 0, strings.NewReader("")))
	require.ErrorIs(t, w.File("a", 0o644, portable.MaxBytes+1, strings.NewReader("")), portable.ErrFull)
	require.ErrorContains(t, w.File("b", 0o644, 4, strings.NewReader("abc")), "3 bytes, and 4 were announced")
}
