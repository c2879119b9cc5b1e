package modalsandbox_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/localmodal"
	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/localmodal/localmodaltest"
	"github.com/overwinter-dev/overwinter/internal/memorytest"
	"github.com/overwinter-dev/overwinter/internal/sandbox/drivertest"
)

// unprevented lists the escapes that follow from each missing ability of a level.
var unprevented = map[box.Ability][]drivertest.Escape{
	box.OwnNetwork: {
		drivertest.ReachSockets, drivertest.ReachLoopback, drivertest.ReachAddresses, drivertest.ReachPrivate, drivertest.SendRaw,
	},
	box.HiddenProcesses:   {drivertest.SeeProcesses, drivertest.SeeSandboxes, drivertest.ExhaustUserQuotas},
	box.SeparateSandboxes: {drivertest.ReadSandboxes},
	box.PrivateIDs:        {drivertest.LeaveSetID},
	box.Boundary: {
		drivertest.WritePrograms, drivertest.WriteKernel, drivertest.BlindSnapshot, drivertest.TraceInit, drivertest.StealDescriptors,
		drivertest.ReachDevices, drivertest.ReachKeys, drivertest.OtherFamilies,
	},
}

func open(level box.Isolation) []drivertest.Escape {
	var escapes []drivertest.Escape
	for _, lack := range level.Lacks() {
		escapes = append(escapes, unprevented[lack.Ability]...)
	}
	if level == box.Directory && os.Geteuid() == 0 { // an ordinary user cannot give a file capabilities
		escapes = append(escapes, drivertest.LeaveCapabilities)
	}
	return escapes
}

// untested lists escapes that are declared and not tried. In a plain directory, some would require
// to deceive the tracer.
func untested(level box.Isolation) []drivertest.Escape {
	switch level {
	case box.Directory:
		// What exists at private addresses, and whether raw sockets need a privilege that the
		// server lacks, depends on the machine.
		return []drivertest.Escape{drivertest.ReadSandboxes, drivertest.ReachPrivate, drivertest.SendRaw, drivertest.OtherFamilies}
	case box.Chroot:
		return []drivertest.Escape{drivertest.ReachPrivate, drivertest.SendRaw}
	default:
		return nil
	}
}

// TestEscapes attacks sandboxes at each isolation level.
func TestEscapes(t *testing.T) {
	t.Parallel()
	for _, level := range box.Levels() {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			o := localmodal.Options{Isolation: level, Network: box.AutoNetwork, DataDir: memorytest.Dir(t)}
			t.Cleanup(func() { require.NoError(t, localmodaltest.Unlock(o.DataDir)) })
			shared := localmodaltest.Start(t, o)
			drivertest.RunEscapes(t, func(t *testing.T) drivertest.EscapeHarness {
				t.Helper()
				return drivertest.EscapeHarness{Harness: harness(t, shared), Open: open(level), Untested: untested(level), DataDir: o.DataDir}
			})
		})
	}
}

// TestEscapesAsOrdinaryUser attacks sandboxes of a server that is not root.
func TestEscapesAsOrdinaryUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("TestEscapes runs as one")
	}
	const nobody = 65534
	dir := memorytest.Dir(t) // the other user must be able to traverse its parents
	require.NoError(t, os.Chown(dir, nobody, nobody))
	program := filepath.Join(dir, "modalsandbox.test")
	// Copied by another process: a file that this process writes cannot be executed while a child
	// that another test forked has inherited its descriptor.
	require.NoError(t, exec.Command("install", "-m", "755", fmt.Sprintf("/proc/%d/exe", os.Getpid()), program).Run())
	cmd := exec.Command(program, "-test.v", "-test.run=^TestEscapes$")
	cmd.Dir = dir
	cmd.Env = []string{"TMPDIR=" + dir, "HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", withoutProgress(out))
}

// withoutProgress removes the lines that name the running test from a test's output, because they
// would hide the failures.
func withoutProgress(out []byte) string {
	var kept strings.Builder
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "=== RUN") && !strings.HasPrefix(line, "=== PAUSE") && !strings.Contains(line, "--- PASS") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// TestSecurityDocumentListsAttacks compares the table of SECURITY.md with the suite and with
// what the levels declare for a server that runs as root.
func TestSecurityDocumentListsAttacks(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("the table is that of root; an ordinary user's level of chroot keeps sandboxes apart as well")
	}
	var table strings.Builder
	table.WriteString("| attack |")
	for _, level := range box.Levels() {
		fmt.Fprintf(&table, " `%s` |", level)
	}
	table.WriteString("\n|---|---|---|---|\n")
	for _, e := range drivertest.Escapes() {
		fmt.Fprintf(&table, "| %s |", e)
		for _, level := range box.Levels() {
			verdict := "prevented"
			if slices.Contains(open(level), e) {
				verdict = "**possible**"
			}
			fmt.Fprintf(&table, " %s |", verdict)
		}
		table.WriteString("\n")
	}
	document, err := os.ReadFile("../../../SECURITY.md")
	require.NoError(t, err)
	require.Contains(t, string(document), table.String())
}
