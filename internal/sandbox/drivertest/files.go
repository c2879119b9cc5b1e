package drivertest

import (
	"bytes"
	"crypto/rand"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/sandbox"
)

func filesRoundTrip(t *testing.T, b *bench) {
	sb := b.sandbox(t)
	big := make([]byte, 5<<20+3)
	_, _ = rand.Read(big) // never fails
	for path, data := range map[string][]byte{
		"/tmp/text":                 []byte("hello\n"),
		"/tmp/empty":                {},
		"/tmp/it's a \"name\" $1 ü": []byte("quoted"),
		"/work/deep/er/still/file":  {0, 1, 2, 0xff},
		"/tmp/big":                  big,
	} {
		require.NoError(t, sb.WriteFile(b.ctx(t), path, data, 0o600))
		got, err := sb.ReadFile(b.ctx(t), path)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, got), "%s: got %d bytes, want %d", path, len(got), len(data))
	}
}

func filesReplaced(t *testing.T, b *bench) {
	sb := b.sandbox(t)
	for _, c := range []struct {
		content string
		mode    fs.FileMode
		want    string
	}{
		{"a longer first content", 0o755, "755"},
		{"short", 0o600, "600"},
		{"default", 0, "644"},
	} {
		require.NoError(t, sb.WriteFile(b.ctx(t), "/srv/tool/run", []byte(c.content), c.mode))
		require.Equal(t, c.content, b.read(t, sb, "/srv/tool/run"))
		require.Equal(t, c.want, string(b.run(t, sb, b.Commands.Mode("/srv/tool/run")).Stdout))
	}
}

func filesMissing(t *testing.T, b *bench) {
	sb := b.sandbox(t)
	_, err := sb.ReadFile(b.ctx(t), "/tmp/nothing")
	requireCode(t, sandbox.NoFile, err)
	require.ErrorIs(t, err, fs.ErrNotExist)
	for _, path := range []string{"", "tmp/f", "/", "/tmp/../f", "/tmp/", "/tmp/a\x00b"} {
		_, err := sb.ReadFile(b.ctx(t), path)
		requireCode(t, sandbox.Invalid, err)
		requireCode(t, sandbox.Invalid, sb.WriteFile(b.ctx(t), path, nil, 0))
	}
	requireCode(t, sandbox.Invalid, sb.WriteFile(b.ctx(t), "/tmp/f", nil, fs.ModeSetuid|0o755))

	b.write(t, sb, "/tmp/dir/file", "x")
	requireCode(t, sandbox.Invalid, sb.WriteFile(b.ctx(t), "/tmp/dir", []byte("y"), 0))
	requireCode(t, sandbox.Invalid, sb.WriteFile(b.ctx(t), "/tmp/dir/file/below", []byte("y"), 0))
	require.Equal(t, "x", b.read(t, sb, "/tmp/dir/file"))
}

func filesShared(t *testing.T, b *bench) {
	sb := b.sandbox(t)
	b.run(t, sb, b.Commands.Put("/work/made", "by a process"))
	require.Equal(t, "by a process", b.read(t, sb, "/work/made"))
	b.run(t, sb, b.Commands.Remove("/work/made"))
	_, err := sb.ReadFile(b.ctx(t), "/work/made")
	requireCode(t, sandbox.NoFile, err)
}
