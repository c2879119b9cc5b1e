package localmodal_test

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"

	modal "github.com/modal-labs/modal-client/go"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/localmodal"
	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/localmodal/localmodaltest"
	"github.com/overwinter-dev/overwinter/internal/memorytest"
)

// The level that a machine allows may change: a snapshot made on one level can be restored on any
// other.
func TestSnapshotsAreForEveryLevel(t *testing.T) {
	t.Parallel()
	dir := memorytest.Dir(t)
	var im *modal.Image
	want := ""
	// An overlay does not count the links of its directories.
	counts := regexp.MustCompile(`(?m)^(\S+ d \d+) [\d ]+ `)
	describe := func(b *bundle, sb *modal.Sandbox) string {
		return counts.ReplaceAllString(b.sh(sb, describeTree), "$1 ")
	}
	levels := append(box.Levels(), box.Levels()...)
	for i, level := range levels {
		s, err := localmodal.New(localmodal.Options{DataDir: dir, Isolation: level})
		require.NoError(t, err)
		stop := localmodaltest.Run(t, s)
		b := connect(t, s)
		sb := b.create(nil)
		if im != nil {
			sb = b.createFrom(im, nil)
			require.Equal(t, want, describe(b, sb), "%s, after %s", level, levels[i-1])
		}
		b.sh(sb, `mkdir -p /work/d && cd /work && echo `+string(level)+` >> log && rm -rf /etc/profile old && mkdir old && mv d old/ && mkdir d &&
			echo x > d/f && ln -sf d/f link && chmod 700 log && touch -d 2001-02-03 d`)
		want = describe(b, sb)
		im = b.snapshot(sb)
		stop()
	}
}

// testExpected names the variable with the level that a process of TestBestLevelIsTaken must
// select.
const testExpected = "LOCALMODAL_TEST_EXPECTED_ISOLATION"

// User namespaces with successive restrictions simulate machines that forbid one feature after the
// other.
func TestBestLevelIsTaken(t *testing.T) {
	t.Parallel()
	if os.Getenv(testLevel) != "" {
		return // this test is for one level
	}
	if expected := os.Getenv(testExpected); expected != "" {
		requireTaken(t, box.Isolation(expected))
		return
	}
	requireTaken(t, box.Namespaces)
	for expected, forbidden := range map[box.Isolation]string{
		box.Chroot:    "echo 0 > /proc/sys/user/max_user_namespaces",
		box.Directory: "echo 0 > /proc/sys/user/max_user_namespaces && echo 0 > /proc/sys/user/max_mnt_namespaces",
	} {
		t.Run(string(expected), func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command("sh", "-c", forbidden+` && exec "$0" -test.v -test.run=^TestBestLevelIsTaken$`, os.Args[0])
			cmd.Env = append(os.Environ(), testExpected+"="+string(expected))
			uids, gids := []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}, []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: uids, GidMappings: gids}
			requirePass(t, cmd)
		})
	}
}

// requireTaken starts a server without choosing a level.
func requireTaken(t *testing.T, expected box.Isolation) {
	t.Helper()
	var log bytes.Buffer
	if expected != box.Namespaces {
		requireRefused(t)
	}
	s, err := localmodal.New(localmodal.Options{
		DataDir: memorytest.Dir(t), Logger: slog.New(slog.NewTextHandler(&log, nil)), Container: "docker",
	})
	require.NoError(t, err)
	stop := localmodaltest.Run(t, s)
	b := connect(t, s)
	require.Equal(t, expected, s.Isolation())
	sb := b.create(nil)
	b.sh(sb, "echo kept > /workspace")
	require.Equal(t, "kept\n", b.sh(b.createFrom(b.snapshot(sb), nil), "cat /workspace"))
	stop()
	require.Contains(t, log.String(), "isolation="+string(expected))
	require.Contains(t, log.String(), "container=docker")

	for _, level := range box.Levels() {
		if level == expected {
			break
		}
		require.Contains(t, log.String(), `refused="`+string(level), "the log says why not")
		_, err := localmodal.New(localmodal.Options{DataDir: memorytest.Dir(t), Isolation: level})
		var unsupported *box.UnsupportedError
		require.ErrorAs(t, err, &unsupported, "no other level is taken in its place")
		require.ErrorContains(t, err, string(level))
	}
	for _, l := range expected.Lacks() {
		require.Contains(t, log.String(), string(l.Ability))
	}
}

// requireRefused starts a server like on a person's machine, where no level without a boundary is
// selected automatically.
func requireRefused(t *testing.T) {
	t.Helper()
	_, err := localmodal.New(localmodal.Options{DataDir: memorytest.Dir(t)})
	var unsupported *box.UnsupportedError
	require.ErrorAs(t, err, &unsupported)
	require.ErrorContains(t, err, "run: sudo sysctl -w user.max_user_namespaces=")
	require.ErrorContains(t, err, "--isolation chroot")
	for _, refusal := range unsupported.Refusals {
		require.Equal(t, box.Namespaces, refusal.Isolation, "no other level is tried")
	}
}
