package main

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestMemoryLimitFollowsControlGroup(t *testing.T) {
	t.Parallel()
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for name, c := range map[string]struct {
		files fstest.MapFS
		limit int64
	}{
		"a container": {fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("2147483648\n")}, 2 << 30},
		"a service": {fstest.MapFS{
			"proc/self/cgroup":                                         file("0::/system.slice/overwinter.service\n"),
			"sys/fs/cgroup/system.slice/memory.max":                    file("4294967296\n"),
			"sys/fs/cgroup/system.slice/overwinter.service/memory.max": file("max\n"),
		}, 4 << 30},
		"no limit":  {fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("max\n")}, 0},
		"version 1": {fstest.MapFS{"proc/self/cgroup": file("4:memory:/x\n"), "sys/fs/cgroup/memory.max": file("2147483648\n")}, 0},
		"elsewhere": {fstest.MapFS{"proc/self/cgroup": file("0::/../../x\n"), "sys/fs/cgroup/memory.max": file("1\n")}, 1},
		"no /proc":  {fstest.MapFS{}, 0},
	} {
		limit, limited := groupLimit(c.files)
		require.Equal(t, c.limit > 0, limited, name)
		if limited {
			require.Equal(t, c.limit, limit, name)
		}
	}
}
