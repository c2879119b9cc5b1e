package box

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
	"github.com/overwinter-dev/overwinter/internal/memorytest"
)

// waitLimit bounds every wait of a test. Waits are short on an idle machine, but the tests of all
// packages share it.
const waitLimit = 2 * time.Minute

type bundle struct {
	t  *testing.T
	rt *Runtime
}

// Ways to isolate a box. For layers, only the difference between copied and overlaid roots matters.
var (
	storages = map[string]Options{
		"overlay": {Isolation: Namespaces},
		"copies":  {Isolation: Namespaces, Copies: true},
	}
	ways = map[string]Options{
		"overlay":   {Isolation: Namespaces},
		"copies":    {Isolation: Namespaces, Copies: true},
		"chroot":    {Isolation: Chroot},
		"directory": {Isolation: Directory},
	}
)

// onEach runs a test with each of the given options.
func onEach(t *testing.T, some map[string]Options, test func(t *testing.T, b *bundle)) {
	t.Helper()
	for name, o := range some {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, setup(t, o))
		})
	}
}

// onDisk runs a test with each of the given options, with the files on a disk.
func onDisk(t *testing.T, some map[string]Options, test func(t *testing.T, b *bundle)) {
	t.Helper()
	for name, o := range some {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.Dir = t.TempDir()
			test(t, setup(t, o))
		})
	}
}

// setup opens a runtime with its files in memory, unless they have a directory already.
func setup(t *testing.T, o Options) *bundle {
	t.Helper()
	if o.Dir == "" {
		o.Dir = memorytest.Dir(t)
	}
	rt, err := Open(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rt.Close()) })
	return &bundle{t, rt}
}

// start starts a box on layers over the base.
func (b *bundle) start(layers ...string) *Box {
	b.t.Helper()
	bx, err := b.rt.Start(b.t.Context(), Spec{ID: uuid.NewString(), Layers: append(layers, BaseLayer)})
	require.NoError(b.t, err)
	b.t.Cleanup(bx.Kill)
	return bx
}

// process is a process with pipes to its streams.
type process struct {
	*Process
	stdin, stdout *os.File
}

func (b *bundle) exec(bx *Box, spec wire.ExecSpec) process {
	b.t.Helper()
	inRead, inWrite, err := os.Pipe()
	require.NoError(b.t, err)
	outRead, outWrite, err := os.Pipe()
	require.NoError(b.t, err)
	spec.Dir = "/"
	p, err := bx.Exec(spec, inRead, outWrite, outWrite)
	require.NoError(b.t, err)
	wire.CloseAll([]*os.File{inRead, outWrite})
	b.t.Cleanup(func() { wire.CloseAll([]*os.File{inWrite, outRead}) })
	return process{p, inWrite, outRead}
}

// sh runs a script that must succeed and returns its output.
func (b *bundle) sh(bx *Box, script string) string {
	b.t.Helper()
	p := b.exec(bx, wire.ExecSpec{Args: []string{"sh", "-c", script}, Env: []string{"PATH=" + DefaultPath}})
	out, err := io.ReadAll(p.stdout)
	require.NoError(b.t, err)
	<-p.Done()
	code, signal := p.Exit()
	require.Zero(b.t, code, "%s\n%s", script, out)
	require.Zero(b.t, signal)
	return string(out)
}

func (b *bundle) snapshot(bx *Box) (string, SnapshotStats) {
	b.t.Helper()
	id := uuid.NewString()
	stats, err := bx.Snapshot(b.t.Context(), id)
	require.NoError(b.t, err)
	return id, stats
}

// settle waits until the last change of every file is old enough for fingerprints.
func (b *bundle) settle(bx *Box, names ...string) {
	b.t.Helper()
	files := b.rt.upperPath(bx.id)
	if b.rt.Copies() {
		files = b.rt.treePath(bx.id)
	}
	require.Eventually(b.t, func() bool {
		for _, name := range names {
			var st unix.Stat_t
			require.NoError(b.t, unix.Lstat(filepath.Join(files, name), &st))
			if time.Since(time.Unix(st.Ctim.Unix())) < settled {
				return false
			}
		}
		return true
	}, waitLimit, 10*time.Millisecond)
}

func (b *bundle) inode(layer, name string) inode {
	b.t.Helper()
	var st unix.Stat_t
	require.NoError(b.t, unix.Lstat(filepath.Join(b.rt.layerPath(layer), name), &st))
	return inode{st.Dev, st.Ino}
}
