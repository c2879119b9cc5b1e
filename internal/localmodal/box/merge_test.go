package box

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const describe = `cd / && find work etc/ssl var -printf '%p %y %m %s %l\n' | sort; find work -type f | sort | xargs -r sha256sum`

// A merged layer shows the same content as the layers that it replaces, for any operations on the
// same few names.
func TestMergedLayerReplacesItsLayers(t *testing.T) {
	t.Parallel()
	onDisk(t, storages, func(t *testing.T, b *bundle) {
		steps := []string{
			"mkdir -p work/a/b", "rm -rf work/a", "rm -rf work/a/b", "echo $i > work/f", "rm -f work/f", "rm -rf work/a && echo $i > work/a",
			"rm -rf etc/ssl", "mkdir -p etc/ssl && echo $i > etc/ssl/mine", "rm -rf var && mkdir var", "mkdir -p work/a; echo $i > work/a/f$i",
			"mkdir -p work/a/b; echo $i > work/a/b/f", "rm -rf work && mkdir work", "ln -sf /f$i work/l", "chmod 70$((i % 8)) work", "mv work/a work/moved$i",
		}
		const seed = 7
		random := rand.New(rand.NewPCG(seed, seed))
		var layers []string
		for i := range 8 {
			bx := b.start(layers...)
			script := []string{"cd /; mkdir -p work"}
			for range 6 {
				script = append(script, fmt.Sprintf("( i=%d; %s ) 2>/dev/null || true", i, steps[random.IntN(len(steps))]))
			}
			b.sh(bx, strings.Join(script, "\n"))
			id, _ := b.snapshot(bx)
			want := b.sh(bx, describe)
			bx.Kill()
			layers = append([]string{id}, layers...)
			require.Equal(t, want, b.sh(b.start(layers...), describe), "restored, step %d", i)

			merged := fmt.Sprint("merged", i)
			require.NoError(t, b.rt.Merge(t.Context(), layers, merged))
			require.Equal(t, want, b.sh(b.start(merged), describe), "merged, step %d\n%s", i, strings.Join(script, "\n"))
			if i == 4 { // merged layers can be merged again
				layers = []string{merged}
			}
		}
		require.False(t, slices.Contains(layers, BaseLayer))
	})
}

func TestFilesOfDeadBoxAreMovedNotCopied(t *testing.T) {
	t.Parallel()
	onEach(t, storages, func(t *testing.T, b *bundle) {
		bx := b.start()
		b.sh(bx, "echo x > /root/f && rm /etc/profile")
		bx.Kill()
		require.NoError(t, b.rt.Claim(t.Context(), bx.id, "claimed"))
		require.Equal(t, "x\n", b.sh(b.start("claimed"), "cat /root/f; ! test -e /etc/profile"))
		require.NoDirExists(t, b.rt.boxPath(bx.id))
	})
}
