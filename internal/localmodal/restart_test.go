package localmodal_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	modal "github.com/modal-labs/modal-client/go"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/localmodal"
	"github.com/overwinter-dev/overwinter/internal/localmodal/access"
	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/localmodal/localmodaltest"
	"github.com/overwinter-dev/overwinter/internal/memorytest"
)

// childServer names the variable that makes the test binary a server to be killed.
const childServer = "LOCALMODAL_TEST_CHILD_DIR"

// runChildServer prints its URL and serves until it is killed.
func runChildServer(dir string) error {
	level, err := box.ParseIsolation(os.Getenv(testLevel))
	if err != nil {
		return err
	}
	s, err := localmodal.New(localmodal.Options{DataDir: dir, Isolation: level})
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, s.URL())
	return s.Run(context.Background())
}

func startChildServer(t *testing.T, dir string) (url string, kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childServer+"="+dir)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	killed := false
	kill = func() {
		if !killed {
			killed = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(kill)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line), kill
}

func connectTo(t *testing.T, url, dir string) *bundle {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), longLife)
	t.Cleanup(cancel)
	token, err := access.Load(dir)
	require.NoError(t, err)
	b := &bundle{t: t, ctx: ctx, client: localmodaltest.Client(t, url, token)}
	app, err := b.client.Apps.FromName(ctx, appOf(t), &modal.AppFromNameParams{CreateIfMissing: true})
	require.NoError(t, err)
	b.app, b.image = app, b.client.Images.FromRegistry("debian:12", nil)
	return b
}

func TestKilledServerLeavesNoProcessAndLosesNothing(t *testing.T) {
	t.Parallel()
	dir := memorytest.Dir(t)
	url, kill := startChildServer(t, dir)
	b := connectTo(t, url, dir)
	sb := b.create(&modal.SandboxCreateParams{
		Name: "mine", Tags: map[string]string{"a": "b"},
		ExperimentalOptions: map[string]any{"enable_exit_snapshot": true},
	})
	plain := b.create(nil)
	marker := "sleep-" + sb.SandboxID
	b.sh(sb, "echo one > /root/f; cp /usr/bin/sleep /tmp/"+marker+"; setsid /tmp/"+marker+" 1000 >/dev/null 2>&1 </dev/null &")
	im := b.snapshot(sb)
	require.NoError(t, im.Publish(b.ctx, "kept:1", nil))
	b.sh(sb, "echo two > /root/f")
	require.Eventually(t, func() bool { return processes(t, marker) == 1 }, waitLimit, 10*time.Millisecond)

	kill()
	require.Eventually(t, func() bool { return processes(t, marker) == 0 }, waitLimit, 10*time.Millisecond)
	unfinished := filepath.Join(dir, "building", "left-by-the-kill")
	require.NoError(t, os.MkdirAll(unfinished, 0o755))

	again := connect(t, localmodaltest.Start(t, options(t, dir)))
	require.Equal(t, b.app.AppID, again.app.AppID)
	for id, name := range map[string]string{sb.SandboxID: "with exit snapshot", plain.SandboxID: "without"} {
		handle, err := again.client.Sandboxes.FromID(again.ctx, id, nil)
		require.NoError(t, err)
		code, err := again.handle(handle).Poll(again.ctx, nil)
		require.NoError(t, err)
		require.Equal(t, new(137), code, name)
	}
	require.Empty(t, again.list(&modal.SandboxListParams{AppID: again.app.AppID}))
	_, err := again.client.Sandboxes.FromName(again.ctx, appOf(t), "mine", nil)
	require.Error(t, err)
	ended, err := again.client.Sandboxes.FromName(again.ctx, appOf(t), "mine", &modal.SandboxFromNameParams{IncludeTerminated: true})
	require.NoError(t, err)
	again.handle(ended)
	tags, err := ended.GetTags(again.ctx, nil)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "b"}, tags)

	published, err := again.client.Images.FromName(again.ctx, "kept:1", nil)
	require.NoError(t, err)
	require.Equal(t, im.ImageID, published.ImageID)
	require.Equal(t, "one\n", again.sh(again.createFrom(published, nil), "cat /root/f"))
	left, err := ended.ExperimentalGetExitSnapshot(again.ctx, nil)
	require.NoError(t, err)
	require.Equal(t, "two\n", again.sh(again.createFrom(left, nil), "cat /root/f"))
	require.NoDirExists(t, unfinished)
	require.NoDirExists(t, filepath.Join(dir, "boxes", plain.SandboxID))
}

func TestStoppedServerEndsItsSandboxes(t *testing.T) {
	t.Parallel()
	dir := memorytest.Dir(t)
	s, err := localmodal.New(options(t, dir))
	require.NoError(t, err)
	stop := localmodaltest.Run(t, s)
	b := connect(t, s)
	sb := b.create(&modal.SandboxCreateParams{ExperimentalOptions: map[string]any{"enable_exit_snapshot": true}})
	b.sh(sb, "echo kept > /root/f")
	stop()
	again := connect(t, localmodaltest.Start(t, options(t, dir)))
	ended, err := again.client.Sandboxes.FromID(again.ctx, sb.SandboxID, nil)
	require.NoError(t, err)
	left, err := again.handle(ended).ExperimentalGetExitSnapshot(again.ctx, nil)
	require.NoError(t, err)
	require.Equal(t, "kept\n", again.sh(again.createFrom(left, nil), "cat /root/f"))
}

// TestStopWaitsForClientsToSaveTheirSandboxes checks that the server is up until the last sandbox
// has ended, or until the drain timeout.
func TestStopWaitsForClientsToSaveTheirSandboxes(t *testing.T) {
	t.Parallel()
	o := options(t, memorytest.Dir(t))
	o.DrainTimeout = waitLimit
	s, err := localmodal.New(o)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	b := connect(t, s)
	sb := b.create(&modal.SandboxCreateParams{})
	stop()
	require.Equal(t, "still here\n", b.sh(sb, "echo still here"))
	require.Empty(t, done)
	_, err = sb.Terminate(b.ctx, nil)
	require.NoError(t, err)
	require.NoError(t, <-done)
}

func TestNewRejectsInvalidConfig(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"0.0.0.0:0", ":0", "192.0.2.1:0", "127.0.0.2:0", "nonsense"} {
		_, err := localmodal.New(localmodal.Options{Address: address, DataDir: memorytest.Dir(t)})
		require.Error(t, err, address)
	}
	_, err := localmodal.New(localmodal.Options{})
	require.ErrorContains(t, err, "data directory")

	dir := memorytest.Dir(t)
	localmodaltest.Start(t, options(t, dir))
	_, err = localmodal.New(localmodal.Options{DataDir: dir})
	require.ErrorContains(t, err, "in use")

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, taken.Close()) })
	_, err = localmodal.New(localmodal.Options{Address: taken.Addr().String(), DataDir: memorytest.Dir(t)})
	require.ErrorContains(t, err, "address already in use")

	// A program that is not an init simulates a machine on which sandboxes cannot run.
	_, err = localmodal.New(localmodal.Options{DataDir: memorytest.Dir(t), InitPath: "/bin/false"})
	require.ErrorContains(t, err, "does not let sandboxes have namespaces")
}

// requireRoom waits until a file system has free space again. A process that another test starts
// inherits the descriptors of this one until it executes its program, which takes a while if a
// network namespace is created: it may still have a removed file open.
func requireRoom(t *testing.T, dir string) {
	t.Helper()
	require.Eventually(t, func() bool {
		var st unix.Statfs_t
		return unix.Statfs(dir, &st) == nil && st.Bfree > st.Blocks/2
	}, waitLimit, 10*time.Millisecond)
}

// TestExitImageSurvivesCrash crashes the server after the files of an ended sandbox have become an
// image and before the sandbox's record refers to it, or while a full disk prevents the image.
func TestExitImageSurvivesCrash(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("a small file system can only be mounted by root")
	}
	dir := memorytest.Dir(t)
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=48m"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	s, err := localmodal.New(options(t, dir))
	require.NoError(t, err)
	stop := localmodaltest.Run(t, s)
	b := connect(t, s)
	var ids []string
	filler := filepath.Join(dir, "filler")
	for i := range 2 {
		sb := b.create(&modal.SandboxCreateParams{ExperimentalOptions: map[string]any{"enable_exit_snapshot": true}})
		b.sh(sb, "echo kept > /root/f")
		if i == 1 {
			fill(t, filler)
		}
		b.terminate(sb)
		ids = append(ids, sb.SandboxID)
	}
	stop()
	require.NoError(t, os.Remove(filler))
	requireRoom(t, dir)
	path := filepath.Join(dir, "records", "sandboxes", ids[0]+".json")
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	var record map[string]any
	require.NoError(t, json.Unmarshal(raw, &record))
	require.NotEmpty(t, record["ExitImageID"])
	delete(record, "ExitImageID")
	delete(record, "Ended")
	raw, err = json.Marshal(record)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, raw, 0o600))

	again := connect(t, localmodaltest.Start(t, options(t, dir)))
	for _, id := range ids {
		ended, err := again.client.Sandboxes.FromID(again.ctx, id, nil)
		require.NoError(t, err)
		left, err := again.handle(ended).ExperimentalGetExitSnapshot(again.ctx, nil)
		require.NoError(t, err)
		require.Equal(t, "kept\n", again.sh(again.createFrom(left, nil), "cat /root/f"))
	}
}
