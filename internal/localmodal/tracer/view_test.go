package tracer_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/localmodal/tracer"
)

// setup returns a view of a tree, with a directory of the machine at /host.
func setup(t *testing.T) (v *tracer.View, tree, host string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	tree, host = filepath.Join(dir, "tree"), filepath.Join(dir, "host")
	for _, d := range []string{"tree/work/sub", "tree/etc", "host/lib"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	for name, target := range map[string]string{
		"tree/bin": "host/bin", "tree/work/up": "..", "tree/work/absolute": "/etc/f", "tree/work/loop": "loop",
		"tree/work/out": "../../../../../etc/f", "tree/work/dangling": "/nowhere/f", "tree/work/leak": tree + "/etc/f",
		"host/bin": "lib", "host/back": "/work",
	} {
		require.NoError(t, os.Symlink(target, filepath.Join(dir, name)))
	}
	v = tracer.NewView(tree, "/short",
		tracer.Mapping{Inside: "/host", Outside: host, Access: tracer.ReadOnly},
		tracer.Mapping{Inside: "/proc", Outside: "/proc", Access: tracer.Fixed})
	return v, tree, host
}

func TestPathsResolveUnderRoot(t *testing.T) {
	t.Parallel()
	v, tree, host := setup(t)
	me := tracer.Process{Group: os.Getpid(), Thread: os.Getpid()}
	for _, c := range []struct {
		path   string
		follow bool
		want   string
	}{
		{"/", true, tree},
		{"/work/f", true, tree + "/work/f"},
		{"/work/../../../etc", true, tree + "/etc"},
		{"//work/./sub//f", true, tree + "/work/sub/f"},
		{"/work/sub/", true, tree + "/work/sub/"},
		{"/work/up/etc", true, tree + "/etc"},
		{"/work/absolute", true, tree + "/etc/f"},
		{"/work/absolute", false, tree + "/work/absolute"},
		{"/work/absolute/", false, tree + "/etc/f/"},
		{"/work/out", true, tree + "/etc/f"},
		{"/work/dangling", true, tree + "/nowhere/f"},
		{"/work/leak", true, tree + "/etc/f"},
		{"/bin/sh", true, host + "/lib/sh"},
		{"/host/back/sub", true, tree + "/work/sub"},
		{"/hosts", true, tree + "/hosts"},
		{"/missing/../etc", true, tree + "/missing/../etc"}, // the kernel reports that it is missing
		{tree + "/etc/f", true, tree + "/etc/f"},
		{"/short/etc/f", true, tree + "/etc/f"},
		{"/proc/self/root/etc/f", true, tree + "/etc/f"},
		{"/proc/self/stat", true, "/proc/" + strconv.Itoa(os.Getpid()) + "/stat"},
		{"/proc/self", false, "/proc/self"},
	} {
		place, err := v.Resolve(c.path, c.follow, me)
		require.NoError(t, err, c.path)
		require.Equal(t, c.want, place.Outside, "%s, followed: %v", c.path, c.follow)
	}
	_, err := v.Resolve("/work/loop", true, me)
	require.ErrorIs(t, err, unix.ELOOP)

	place, err := v.Resolve("/bin/sh", true, me)
	require.NoError(t, err)
	require.Equal(t, tracer.ReadOnly, place.Access)
	for outside, inside := range map[string]string{tree: "/", tree + "/work": "/work", host + "/lib": "/host/lib"} {
		got, ok := v.Inside(outside)
		require.True(t, ok, outside)
		require.Equal(t, inside, got)
	}
	_, ok := v.Inside("/root")
	require.False(t, ok)
}

func TestMappingsAreAddedAndRemoved(t *testing.T) {
	t.Parallel()
	v, tree, host := setup(t)
	me := tracer.Process{Group: os.Getpid(), Thread: os.Getpid()}
	resolve := func() string {
		place, err := v.Resolve("/work/f", true, me)
		require.NoError(t, err)
		return place.Outside
	}
	v.Map(tracer.Mapping{Inside: "/work", Outside: host})
	require.Equal(t, host+"/f", resolve())
	_, ok := v.Unmap("/work")
	require.True(t, ok)
	require.Equal(t, tree+"/work/f", resolve())
	_, ok = v.Unmap("/work")
	require.False(t, ok)
}

func TestScriptsAreRunByTheirInterpretersInside(t *testing.T) {
	t.Parallel()
	v, tree, host := setup(t)
	me := tracer.Process{Group: os.Getpid(), Thread: os.Getpid()}
	put := func(path, content string) {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o755))
	}
	put(tree+"/work/plain", "\x7fELF")
	put(tree+"/work/script", "#!/host/interpreter  -x y\n")
	put(tree+"/work/nested", "#! /work/script\n")
	put(tree+"/work/endless", "#!/work/endless\n")
	put(host+"/interpreter", "\x7fELF")
	for name, want := range map[string][]string{
		"plain":  {tree + "/work/plain"},
		"script": {host + "/interpreter", "/host/interpreter", "-x y", "/work/script"},
		"nested": {host + "/interpreter", "/host/interpreter", "-x y", "/work/script", "/work/nested"},
	} {
		program, words, err := v.Script(tree+"/work/"+name, "/work/"+name, me)
		require.NoError(t, err, name)
		require.Equal(t, want, append([]string{program}, words...), name)
	}
	_, _, err := v.Script(tree+"/work/endless", "/work/endless", me)
	require.ErrorIs(t, err, unix.ELOOP)
}
