package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEndsWithItsParent kills the parent while another process holds the other end of stdin, so
// that only the kernel can report it.
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
	found := listeners(t, server.cmd.Process.Pid)
	for _, address := range found {
		host, _, err := net.SplitHostPort(address)
		require.NoError(t, err)
		require.Equal(t, "127.0.0.1", host, address)
	}
	require.Len(t, found, 5, "frontend, history, matching, worker, UI")
}

// Every user of the machine reaches a loopback address.
func TestServesItsUsersOnly(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root runs programs of other users")
	}
	const stranger, guest = 61234, 61235
	b := setup(t)
	server := b.start(t, "--ui-port", fmt.Sprint(b.uiPort), "--allow-users", fmt.Sprint(guest))
	addresses := listeners(t, server.cmd.Process.Pid)
	as := func(id uint32) map[string]string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", addresses...)
		cmd.Env = append(os.Environ(), asStranger+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
		output, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", output)
		tried := map[string]string{}
		for line := range strings.Lines(string(output)) {
			way, result, _ := strings.Cut(strings.TrimSpace(line), ": ")
			tried[way] = result
		}
		return tried
	}
	frontend, ui := b.address(), fmt.Sprintf("127.0.0.1:%d", b.uiPort)
	for id, want := range map[uint32]struct{ call, page string }{
		stranger: {"PermissionDenied", "403"}, guest: {"OK", "200"}, 0: {"OK", "200"},
	} {
		tried := as(id)
		require.Equal(t, want.call, tried["frontend "+frontend], "user %d", id)
		require.Equal(t, want.call, tried["admin "+frontend], "user %d", id)
		require.Equal(t, want.page, tried["page "+ui], "user %d", id)
		for _, address := range addresses {
			if address == frontend || address == ui {
				continue
			}
			// Other programs of root are refused too, because these ports are for one process.
			require.Equal(t, "Unavailable", tried["history "+address], "user %d: %s", id, address)
			require.Equal(t, "Unavailable", tried["history over TLS "+address], "user %d: %s", id, address)
			require.NotEqual(t, "200", tried["page "+address], "user %d: %s", id, address)
		}
	}
}

// listeners returns the TCP addresses on which a process listens.
func listeners(t *testing.T, pid int) []string {
	t.Helper()
	inodes := map[string]bool{}
	descriptors, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	require.NoError(t, err)
	for _, descriptor := range descriptors {
		target, err := os.Readlink(descriptor)
		if errors.Is(err, os.ErrNotExist) {
			continue // closed in the meantime
		}
		require.NoError(t, err)
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}

	const listening = "0A"
	var found []string
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
			host, port, _ := strings.Cut(fields[1], ":")
			number, err := strconv.ParseUint(port, 16, 16)
			require.NoError(t, err)
			address, err := hex.DecodeString(host)
			require.NoError(t, err)
			slices.Reverse(address) // the kernel prints an IPv4 address as a little-endian number
			found = append(found, net.JoinHostPort(net.IP(address).String(), strconv.FormatUint(number, 10)))
		}
		require.NoError(t, scanner.Err())
		require.NoError(t, file.Close())
	}
	return found
}
