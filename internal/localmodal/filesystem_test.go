package localmodal_test

import (
	"bytes"
	"testing"

	modal "github.com/modal-labs/modal-client/go"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
)

func TestFilesystemCalls(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb := b.create(nil)
	files := sb.Filesystem

	require.NoError(t, files.WriteText(b.ctx, "hello", "/work/a/f.txt", nil))
	text, err := files.ReadText(b.ctx, "/work/a/f.txt", nil)
	require.NoError(t, err)
	require.Equal(t, "hello", text)

	big := bytes.Repeat([]byte("0123456789abcdef"), 256<<10)
	require.NoError(t, files.WriteBytes(b.ctx, big, "/work/big", nil))
	got, err := files.ReadBytes(b.ctx, "/work/big", nil)
	require.NoError(t, err)
	require.True(t, bytes.Equal(big, got))

	require.NoError(t, files.MakeDirectory(b.ctx, "/work/b/c", nil))
	b.sh(sb, "ln -s f.txt /work/a/link")
	list, err := files.ListFiles(b.ctx, "/work/a", nil)
	require.NoError(t, err)
	var names []string
	for _, f := range list {
		names = append(names, f.Name)
	}
	require.ElementsMatch(t, []string{"f.txt", "link"}, names)
	info, err := files.Stat(b.ctx, "/work/a/f.txt", nil)
	require.NoError(t, err)
	require.EqualValues(t, 5, info.Size)
	if !b.lacks(box.OwnRoot) {
		require.Equal(t, "root", info.Owner)
	}
	require.NoError(t, files.Remove(b.ctx, "/work/big", nil))
}

func TestFilesystemErrorsHaveTheirTypes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb := b.create(nil)
	files := sb.Filesystem
	b.sh(sb, "mkdir -p /work/full && touch /work/full/f /work/file")

	var notFound modal.SandboxFilesystemNotFoundError
	_, err := files.ReadText(b.ctx, "/nope", nil)
	require.ErrorAs(t, err, &notFound)
	_, err = files.Stat(b.ctx, "/nope", nil)
	require.ErrorAs(t, err, &notFound)
	_, err = files.ListFiles(b.ctx, "/nope", nil)
	require.ErrorAs(t, err, &notFound)
	require.ErrorAs(t, files.Remove(b.ctx, "/nope", nil), &notFound)

	var isDirectory modal.SandboxFilesystemIsADirectoryError
	_, err = files.ReadText(b.ctx, "/work", nil)
	require.ErrorAs(t, err, &isDirectory)
	var notDirectory modal.SandboxFilesystemNotADirectoryError
	_, err = files.ListFiles(b.ctx, "/work/file", nil)
	require.ErrorAs(t, err, &notDirectory)
	require.ErrorAs(t, files.WriteText(b.ctx, "x", "/work/file/below", nil), &notDirectory)
	var notEmpty modal.SandboxFilesystemDirectoryNotEmptyError
	require.ErrorAs(t, files.Remove(b.ctx, "/work/full", nil), &notEmpty)
	var forbidden modal.SandboxFilesystemPermissionError
	kept := "/etc/resolv.conf" // mounted read-only
	if b.lacks(box.SystemPackages) {
		kept = "/usr/x"
	}
	require.ErrorAs(t, files.WriteText(b.ctx, "x", kept, nil), &forbidden)
}

func TestFilesystemWatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb := b.create(nil)
	b.sh(sb, "mkdir -p /work/sub")
	timeout := waitLimit
	events, err := sb.Filesystem.Watch(b.ctx, "/work", &modal.SandboxFilesystemWatchParams{
		Timeout: &timeout, Recursive: true, Filter: []modal.FileWatchEventType{modal.FileWatchEventTypeCreate},
	})
	require.NoError(t, err)
	// The watch begins some time after the call, so files are created until one is reported.
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = sb.Filesystem.WriteText(b.ctx, "x", "/work/sub/seen", nil)
				_ = sb.Filesystem.Remove(b.ctx, "/work/sub/seen", nil)
			}
		}
	}()
	for event, err := range events {
		require.NoError(t, err)
		require.Equal(t, modal.FileWatchEventTypeCreate, event.EventType)
		require.Equal(t, []string{"/work/sub/seen"}, event.Paths)
		break
	}
	close(stop)
	<-stopped
}
