package box

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
)

func TestUnchangedFilesAreSharedBetweenSnapshots(t *testing.T) {
	t.Parallel()
	onDisk(t, ways, func(t *testing.T, b *bundle) {
		bx := b.start()
		b.sh(bx, "cd /root && echo same > same && echo old > written && echo mode > mode && echo gone > gone && ln same twin")
		b.settle(bx, "root/same", "root/written", "root/mode", "root/gone")
		first, stats := b.snapshot(bx)
		require.Equal(t, 4, stats.Copied)
		require.Zero(t, stats.Linked)

		b.sh(bx, "cd /root && echo new > written && chmod 600 mode && rm gone && echo more > more")
		second, stats := b.snapshot(bx)
		require.Equal(t, 3, stats.Copied, "written, mode, more")
		require.Equal(t, 1, stats.Linked)
		require.Equal(t, b.inode(first, "root/same"), b.inode(second, "root/same"))
		require.Equal(t, b.inode(second, "root/twin"), b.inode(second, "root/same"))
		require.NotEqual(t, b.inode(first, "root/mode"), b.inode(second, "root/mode"))

		require.Equal(t, "gone\nmode\nold\nsame\n", b.sh(b.start(first), "cd /root && cat gone mode written twin"))
		require.Equal(t, "mode\nmore\nnew\nsame\n600\n", b.sh(b.start(second), "cd /root && cat mode more written twin && stat -c %a mode && ! test -e gone"))

		// If the layer of the previous snapshot is removed, everything is copied again.
		require.NoError(t, b.rt.RemoveLayer(second))
		third, stats := b.snapshot(bx)
		require.Zero(t, stats.Linked)
		require.Equal(t, "same\n", b.sh(b.start(third), "cat /root/same"))
	})
}

func TestSparseFilesStaySparse(t *testing.T) {
	t.Parallel()
	onEach(t, ways, func(t *testing.T, b *bundle) {
		bx := b.start()
		b.sh(bx, "cd /root && truncate -s 100G hole && truncate -s 10G f && printf begin | dd of=f conv=notrunc && printf middle | dd of=f conv=notrunc seek=1000000 bs=4096")
		want := b.sh(bx, "cd /root && stat -c '%n %s' *; head -c 8 f; dd if=f bs=4096 skip=1000000 count=1 status=none")
		layer, stats := b.snapshot(bx)
		require.Less(t, stats.Bytes, int64(1<<20))
		require.Equal(t, want, b.sh(b.start(layer), "cd /root && stat -c '%n %s' *; head -c 8 f; dd if=f bs=4096 skip=1000000 count=1 status=none"))
	})
}

func TestRecentlyChangedFilesAreCopied(t *testing.T) {
	t.Parallel()
	onEach(t, ways, func(t *testing.T, b *bundle) {
		bx := b.start()
		for i := range 20 { // repeated to get changes within one tick of the clock
			b.sh(bx, fmt.Sprintf("printf %%02d %d > /root/f", i))
			layer, _ := b.snapshot(bx)
			got, err := os.ReadFile(filepath.Join(b.rt.layerPath(layer), "root/f"))
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf("%02d", i), string(got))
		}
	})
}

func TestWritesThroughMappingAreSnapshotted(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, b *bundle) {
		bx := b.start()
		b.sh(bx, "head -c 4096 /dev/zero > /root/mapped")
		p := b.exec(bx, wire.ExecSpec{Args: []string{"/proc/self/exe"}, Env: []string{mapperFile + "=/root/mapped"}})
		store := func(text string) {
			_, err := p.stdin.WriteString(text + "\n")
			require.NoError(t, err)
			answer := make([]byte, 64)
			n, err := p.stdout.Read(answer)
			require.NoError(t, err)
			require.Equal(t, "stored\n", string(answer[:n]))
		}
		for _, text := range []string{"one", "two", "abc"} {
			store(text)
			b.settle(bx, "root/mapped") // so that only the mapping could hide a change
			for range 2 {
				layer, _ := b.snapshot(bx)
				got, err := os.ReadFile(filepath.Join(b.rt.layerPath(layer), "root/mapped"))
				require.NoError(t, err)
				require.Equal(t, text, string(got[:3]))
			}
		}
	}
	onDisk(t, ways, test)
	t.Run("in memory", func(t *testing.T) {
		t.Parallel()
		onEach(t, ways, test)
	})
}

func TestCancelledSnapshotLeavesNothingAndLetsBoxRunOn(t *testing.T) {
	t.Parallel()
	onEach(t, ways, func(t *testing.T, b *bundle) {
		bx := b.start()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := bx.Snapshot(ctx, "never")
		require.ErrorIs(t, err, context.Canceled)
		layers, err := b.rt.Layers()
		require.NoError(t, err)
		require.Empty(t, layers)
		require.Equal(t, "x\n", b.sh(bx, "echo x"))
	})
}

func TestStoppedProcessStaysStoppedAfterSnapshot(t *testing.T) {
	t.Parallel()
	onEach(t, ways, func(t *testing.T, b *bundle) {
		bx := b.start()
		state := `cut -d')' -f2 /proc/$(cat /root/pid)/stat | cut -d' ' -f2`
		// If it were stopped earlier, it would still have our end of its output open.
		b.sh(bx, "sleep 100 >/dev/null 2>&1 & echo $! > /root/pid; until grep -q sleep /proc/$!/comm; do :; done; kill -STOP $!")
		comesTo := func(want string) { // a signal takes effect when its process gets a CPU
			t.Helper()
			require.Eventually(t, func() bool { return strings.ToUpper(b.sh(bx, state)) == want+"\n" }, waitLimit, 5*time.Millisecond)
		}
		comesTo("T") // stopped, whether traced or not
		b.snapshot(bx)
		comesTo("T")
		b.sh(bx, "kill -CONT $(cat /root/pid)")
		comesTo("S")
	})
}
