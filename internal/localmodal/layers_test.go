package localmodal_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	modal "github.com/modal-labs/modal-client/go"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/overwinter-dev/overwinter/internal/localmodal/localmodaltest"
	"github.com/overwinter-dev/overwinter/internal/memorytest"
)

// entries returns the names in a directory of the data directory, except the base layer.
func entries(t testing.TB, path ...string) (names []string) {
	t.Helper()
	found, err := os.ReadDir(filepath.Join(path...))
	require.NoError(t, err)
	for _, e := range found {
		names = append(names, e.Name())
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "base" })
}

// TestImageIsDeletedWhileItIsUsed checks that a start or a build in progress keeps its files, and
// that afterwards all of them are deleted.
func TestImageIsDeletedWhileItIsUsed(t *testing.T) {
	t.Parallel()
	dir := memorytest.Dir(t)
	b := connect(t, localmodaltest.Start(t, options(t, dir)))
	notFound := func(err error) bool {
		var gone modal.NotFoundError
		return errors.As(err, &gone) || status.Code(err) == codes.NotFound
	}
	for range 4 {
		sb := b.create(nil)
		b.sh(sb, "echo x > /root/f")
		im := b.snapshot(sb)
		b.terminate(sb)
		var g errgroup.Group
		for range 3 {
			g.Go(func() error {
				user, err := b.client.Sandboxes.Create(b.ctx, b.app, im, nil)
				if err != nil {
					if notFound(err) {
						return nil
					}
					return err
				}
				process, err := b.handle(user).Exec(b.ctx, []string{"cat", "/root/f"}, nil)
				if err != nil {
					return err
				}
				code, err := process.Wait(b.ctx, nil)
				if err == nil && code != 0 {
					err = errors.New("a sandbox began without the files of its image")
				}
				_, ended := user.Terminate(b.ctx, &modal.SandboxTerminateParams{Wait: true})
				return errors.Join(err, ended)
			})
			g.Go(func() error {
				built, err := im.DockerfileCommands([]string{"RUN cat /root/f > /root/g"}, nil).Build(b.ctx, b.app, nil)
				if err == nil {
					err = b.client.Images.Delete(b.ctx, built.ImageID, nil)
				}
				if notFound(err) {
					return nil
				}
				return err
			})
		}
		g.Go(func() error { return b.client.Images.Delete(b.ctx, im.ImageID, nil) })
		require.NoError(t, g.Wait())
	}
	// The next collection deletes layers that were in use during this one.
	sb := b.create(nil)
	im := b.snapshot(sb)
	b.terminate(sb)
	require.NoError(t, b.client.Images.Delete(b.ctx, im.ImageID, nil))
	require.Empty(t, entries(t, dir, "layers"))
	require.Eventually(t, func() bool { return len(entries(t, dir, "trash")) == 0 }, waitLimit, 10*time.Millisecond)
	require.Empty(t, entries(t, dir, "building"))
	require.Empty(t, entries(t, dir, "boxes"))
}

// TestLayersAreCollectedWhileSnapshotsAreMade keeps a snapshot in progress at all times.
func TestLayersAreCollectedWhileSnapshotsAreMade(t *testing.T) {
	t.Parallel()
	dir := memorytest.Dir(t)
	b := connect(t, localmodaltest.Start(t, options(t, dir)))
	other := b.create(nil)
	b.sh(other, "for i in $(seq 3000); do echo $i > /root/f$i; done")
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		for err == nil {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			_, err = other.SnapshotFilesystem(b.ctx, nil)
		}
		done <- err
	}()
	sb := b.create(nil)
	for range 10 {
		b.sh(sb, "date +%N > /root/f")
		im := b.snapshot(sb)
		before := entries(t, dir, "layers")
		require.NoError(t, b.client.Images.Delete(b.ctx, im.ImageID, nil))
		after := entries(t, dir, "layers")
		require.True(t, slices.ContainsFunc(before, func(name string) bool { return !slices.Contains(after, name) }), "its layer is deleted at once")
	}
	close(stop)
	require.NoError(t, <-done)
}

func TestFullDiskFailsSnapshotsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("a small file system can only be mounted by root")
	}
	dir := memorytest.Dir(t)
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=48m"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, log.Close()) })
	o := options(t, dir)
	o.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	b := connect(t, localmodaltest.Start(t, o))
	exit := map[string]any{"enable_exit_snapshot": true}
	sb := b.create(&modal.SandboxCreateParams{ExperimentalOptions: exit})
	b.sh(sb, "echo kept > /root/f; dd if=/dev/urandom of=/root/big bs=1M count=20 2>/dev/null")
	// A sandbox whose files have not been counted yet would be ended for them when the disk is full.
	counted := regexp.MustCompile(`counted the files of a sandbox" sandbox_id=` + sb.SandboxID + ` bytes=2[0-9]{7} `)
	require.Eventually(t, func() bool {
		lines, err := os.ReadFile(log.Name())
		return err == nil && counted.Match(lines)
	}, waitLimit, 10*time.Millisecond)
	filler := filepath.Join(dir, "filler")
	require.NoError(t, os.WriteFile(filler, make([]byte, 16<<20), 0o600))

	full := func(err error) {
		t.Helper()
		require.ErrorContains(t, err, "is full")
		require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
	}
	_, err = sb.SnapshotFilesystem(b.ctx, nil)
	full(err)
	require.Empty(t, entries(t, dir, "layers"), "no part of a layer is left")
	require.Empty(t, entries(t, dir, "building"))
	require.Equal(t, "kept\n", b.sh(sb, "cat /root/f"), "the sandbox works on")

	// Filled to the last byte: no record can be written either.
	fill(t, filler)
	_, err = b.client.Sandboxes.Create(b.ctx, b.app, b.image, nil)
	full(err)
	_, err = sb.SnapshotFilesystem(b.ctx, nil)
	full(err)
	require.Empty(t, entries(t, dir, "layers"))
	require.Len(t, entries(t, dir, "boxes"), 1)
	require.Len(t, entries(t, dir, "records", "sandboxes"), 1)

	require.NoError(t, os.Remove(filler))
	requireRoom(t, dir)
	im := b.snapshot(sb)
	restored := b.createFrom(im, nil)
	require.Equal(t, "kept\n", b.sh(restored, "cat /root/f"))
	b.terminate(restored)

	// A sandbox that ends while the disk is full keeps its exit image.
	require.NoError(t, b.client.Images.Delete(b.ctx, im.ImageID, nil))
	b.sh(sb, "echo last > /root/f")
	require.Eventually(t, func() bool { return len(entries(t, dir, "trash")) == 0 }, waitLimit, 10*time.Millisecond) // its space is free
	fill(t, filler)
	b.terminate(sb)
	pending := time.Second
	_, err = sb.ExperimentalGetExitSnapshot(b.ctx, &modal.SandboxExperimentalGetExitSnapshotParams{Timeout: &pending})
	require.Error(t, err, "it is not made yet")
	require.NoError(t, os.Remove(filler))
	exited, err := sb.ExperimentalGetExitSnapshot(b.ctx, nil)
	require.NoError(t, err)
	require.Equal(t, "last\n", b.sh(b.createFrom(exited, nil), "cat /root/f"))
}

// fill appends to a file until the disk is full to the last byte.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	defer f.Close()
	for size := 1 << 20; size > 0; size /= 16 {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
		require.ErrorIs(t, err, unix.ENOSPC)
	}
}
