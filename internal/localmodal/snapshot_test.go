package localmodal_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	modal "github.com/modal-labs/modal-client/go"
	"github.com/stretchr/testify/require"
)

// describeTree prints all properties of the files of /work.
const describeTree = `cd /work && find . -printf '%p %y %m %s %n %l %T@\n' | sed 's/^\(\. d [0-9]* \)[0-9]* /\1/' | sort; ` +
	`find . -type f | sort | xargs -d '\n' sha256sum; ls -A /etc/profile /var/cache 2>&1 | sort; getfattr -R -d . 2>/dev/null || true`

func TestSnapshotIsExact(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb := b.create(nil)
	b.sh(sb, `
		mkdir -p /work/sub/deep /work/gone /work/replaced && cd /work
		echo one > file && chmod 640 file && touch -d '2001-02-03 04:05:06.789' file
		echo '#!/bin/sh' > script && chmod 4755 script
		echo locked > locked && chmod 000 locked
		mkdir private && echo x > private/x && chmod 000 private
		ln -s file link && ln -s /nowhere dangling && ln file sub/hard
		mkfifo pipe; echo a > 'name with spaces'; : > empty; truncate -s 1M sparse
		echo base > gone/f; echo base > replaced/f`)
	first := b.snapshot(sb)
	tree := b.sh(sb, describeTree)

	second := b.createFrom(first, nil)
	require.Equal(t, tree, b.sh(second, describeTree))

	// In the second layer: deletions of files of the first one, a directory that replaces another,
	// changes of attributes only, and deletions in the base.
	b.sh(second, `
		cd /work && rm -r gone && rm file && rm -r replaced && mkdir replaced && echo new > replaced/g
		chmod 600 script && rm /etc/profile && mv sub moved && rm -r /var/cache && mkdir /var/cache`)
	tree = b.sh(second, describeTree)
	require.NotContains(t, tree, "gone")
	third := b.createFrom(b.snapshot(second), nil)
	require.Equal(t, tree, b.sh(third, describeTree))

	b.sh(third, "rm /work/link && echo mine > /work/mine")
	require.Equal(t, tree, b.sh(second, describeTree), "the copy changes the original")
	require.Contains(t, b.sh(b.createFrom(first, nil), describeTree), "./gone/f")
}

func TestSnapshotStopsWriters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb := b.create(nil)
	process, err := sb.Exec(b.ctx, []string{
		"bash", "-c",
		`cd /root; i=0; echo 0 > a; echo 0 > b; echo ready; while :; do i=$((i+1)); echo $i > a.new; mv a.new a; echo $i > b.new; mv b.new b; done`,
	}, nil)
	require.NoError(t, err)
	_, err = process.Stdout.Read(make([]byte, 16))
	require.NoError(t, err)
	for range 5 {
		sb := b.createFrom(b.snapshot(sb), nil)
		var first, last int
		_, err := fmt.Sscan(b.sh(sb, "cat /root/a /root/b"), &first, &last)
		require.NoError(t, err)
		require.Contains(t, []int{0, 1}, first-last, "b is written right after a")
		b.terminate(sb)
	}
	require.NoError(t, process.Stdout.Close())
}

func TestSnapshotOfEndedSandboxIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb := b.create(nil)
	b.terminate(sb)
	_, err := sb.SnapshotFilesystem(b.ctx, nil)
	require.Error(t, err)
	byID, err := b.client.Sandboxes.FromID(b.ctx, sb.SandboxID, nil)
	require.NoError(t, err)
	_, err = b.handle(byID).SnapshotFilesystem(b.ctx, nil)
	var conflict modal.ConflictError
	require.ErrorAs(t, err, &conflict)
}

func TestExpiredSnapshotIsGone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb := b.create(nil)
	var im *modal.Image
	var found error
	hurry(func(limit time.Duration) {
		var err error
		im, err = sb.SnapshotFilesystem(b.ctx, &modal.SandboxSnapshotFilesystemParams{TTL: limit})
		require.NoError(t, err)
		_, found = b.client.Images.FromID(b.ctx, im.ImageID, nil)
	})
	require.NoError(t, found)
	require.Eventually(t, func() bool {
		_, err := b.client.Images.FromID(b.ctx, im.ImageID, nil)
		var notFound modal.NotFoundError
		return errors.As(err, &notFound)
	}, waitLimit, 50*time.Millisecond)
}

func TestExitSnapshotKeepsFiles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, c := range map[string]struct {
		params modal.SandboxCreateParams
		end    func(*modal.Sandbox)
		code   int
	}{
		"terminated": {modal.SandboxCreateParams{}, b.terminate, 137},
		"timed out":  {modal.SandboxCreateParams{Timeout: 1}, func(*modal.Sandbox) {}, 124}, // see below
		"finished": {
			modal.SandboxCreateParams{Command: []string{"sh", "-c", "while ! test -e /root/f; do sleep 0.01; done; exit 3"}},
			func(*modal.Sandbox) {}, 3,
		},
	} {
		c.params.ExperimentalOptions = map[string]any{"enable_exit_snapshot": true}
		var sb *modal.Sandbox
		hurry(func(limit time.Duration) {
			if c.params.Timeout > 0 {
				c.params.Timeout = limit
			}
			sb = b.create(&c.params)
			// The exit code may be that of a killed process.
			b.try(sb, "sh", "-c", "echo kept > /root/g; touch /root/f")
		})
		c.end(sb)
		code, err := sb.Wait(b.ctx, nil)
		require.NoError(t, err)
		require.Equal(t, c.code, code, name)
		im, err := sb.ExperimentalGetExitSnapshot(b.ctx, nil)
		require.NoError(t, err, name)
		require.Equal(t, "kept\n", b.sh(b.createFrom(im, nil), "cat /root/g"), name)
	}
}

func TestDirectorySnapshotCanBeMounted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb := b.create(nil)
	b.sh(sb, "mkdir -p /data/sub && echo x > /data/sub/f && ln -s f /data/sub/l && chmod 750 /data/sub")
	im, err := sb.SnapshotDirectory(b.ctx, "/data", nil)
	require.NoError(t, err)
	other := b.create(nil)
	require.NoError(t, other.MountImage(b.ctx, "/mnt/data", im, nil))
	require.Equal(t, "x\n750\n", b.sh(other, "cat /mnt/data/sub/l; stat -c %a /mnt/data/sub"))
	require.NoError(t, other.UnmountImage(b.ctx, "/mnt/data", nil))
	require.Empty(t, b.sh(other, "ls -A /mnt/data"))
	_, err = b.client.Sandboxes.Create(b.ctx, b.app, im, nil)
	require.Error(t, err, "a directory is not a root")

	// The image of a whole root can also be mounted.
	require.NoError(t, other.MountImage(b.ctx, "/mnt/root", b.snapshot(sb), nil))
	require.Equal(t, "x\n", b.sh(other, "cat /mnt/root/data/sub/f"))
}

func TestDeletedImageIsGoneButItsSandboxesRunOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb := b.create(nil)
	b.sh(sb, "echo x > /root/f")
	im := b.snapshot(sb)
	user := b.createFrom(im, nil)
	require.NoError(t, b.client.Images.Delete(b.ctx, im.ImageID, nil))
	require.Equal(t, "x\n", b.sh(user, "cat /root/f"))
	_, err := b.client.Sandboxes.Create(b.ctx, b.app, im, nil)
	require.Error(t, err)
	// The files of the sandbox are still complete.
	require.Equal(t, "x\n", b.sh(b.createFrom(b.snapshot(user), nil), "cat /root/f"))
}
