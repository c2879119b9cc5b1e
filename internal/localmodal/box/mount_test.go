package box

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
)

// Sandboxes write to volumes whose subdirectories other sandboxes mount. A link that one sandbox
// creates there, at any moment, must not redirect the mount of another one out of the volume.
func TestMountOfPartFollowsNoLink(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{"namespaces": {Isolation: Namespaces}, "chroot": {Isolation: Chroot}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, o)
			volume, outside := filepath.Join(b.rt.dir, "volume"), t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(volume, "a", "b"), 0o755)) // like a volume
			require.NoError(t, os.WriteFile(filepath.Join(volume, "a", "b", "f"), []byte("inside"), 0o644))
			require.NoError(t, os.Mkdir(filepath.Join(outside, "b"), 0o755))
			for link, target := range map[string]string{"out": outside, "up": "..", "in": "a"} {
				require.NoError(t, os.Symlink(target, filepath.Join(volume, link)))
			}
			start := func(sub string) (*Box, error) {
				return b.rt.Start(t.Context(), Spec{
					ID: uuid.NewString(), Layers: []string{BaseLayer}, Mounts: []wire.Mount{{Source: volume, Sub: sub, Target: "/v"}},
				})
			}
			bx, err := start("a/b")
			require.NoError(t, err)
			t.Cleanup(bx.Kill)
			require.Equal(t, "inside", b.sh(bx, "cat /v/f"))
			for _, sub := range []string{"out", "out/b", "up", "in/b", "../..", "a/../../x"} {
				_, err := start(sub)
				require.Error(t, err, sub)
			}
		})
	}
}
