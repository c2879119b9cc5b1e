package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEndsWithItsParent kills the parent while something else holds the other end of stdin, so
// that only the kernel can tell.
func TestEndsWithItsParent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	parent := launch(t, asParent, b.args("--exit-with-stdin"))
	parent.waitReady(t)

	pids := childrenOf(t, parent.cmd.Process.Pid)
	require.NotEmpty(t, pids)

	require.NoError(t, parent.cmd.Process.Kill())
	eventually(t, func(context.Context) error {
		for _, pid := range pids {
			if alive(pid) {
				return fmt.Errorf("process %d outlives its parent", pid)
			}
		}
		return nil
	})
}

// childrenOf lists the processes that any thread of pid has started.
func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	var pids []int
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, field := range strings.Fields(string(content)) {
			child, err := strconv.Atoi(field)
			require.NoError(t, err)
			pids = append(pids, child)
		}
	}
	return pids
}

func TestListensOnItsAddressOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	server := b.start(t, "--ui-port", fmt.Sprint(b.uiPort))

	inodes := map[string]bool{}
	descriptors, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", server.cmd.Process.Pid))
	require.NoError(t, err)
	for _, descriptor := range descriptors {
		target, err := os.Readlink(descriptor)
		if errors.Is(err, os.ErrNotExist) {
			continue // closed meanwhile
		}
		require.NoError(t, err)
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}

	const listening = "0A"
	loopback := 0
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		file, err := os.Open(table)
		require.NoError(t, err)
		scanner := bufio.NewScanner(file)
		for scanner.Scan() {
			// sl local_address rem_address st tx:rx tr:tm retrnsmt uid timeout inode
			fields := strings.Fields(scanner.Text())
			if len(fields) < 10 || fields[3] != listening || !inodes[fields[9]] {
				continue
			}
			address, _, _ := strings.Cut(fields[1], ":")
			// The kernel prints an IPv4 address as a little-endian number: 127.x.y.z ends in 7F. The UI
			// behind its proxy listens at a random address of that range.
			require.Len(t, address, len("0100007F"), "%s: %s", table, scanner.Text())
			require.Equal(t, "7F", address[6:], "%s: %s", table, scanner.Text())
			loopback++
		}
		require.NoError(t, scanner.Err())
		require.NoError(t, file.Close())
	}
	require.Equal(t, 6, loopback, "frontend, history, matching, worker, UI and the proxy in front of it")
}
