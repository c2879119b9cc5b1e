package drivertest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Harness is a driver under test with the environment that the suite needs.
type Harness struct {
	// Driver is the driver under test. The harness closes it.
	Driver driver.Driver
	// Second is another client of the same provider, like that of another worker: it shares no
	// state with Driver on this side. The harness closes it.
	Second driver.Driver
	// Image is the image for sandboxes, and OtherImage another reference to one.
	Image, OtherImage string
	// Commands are the programs that the suite runs in a sandbox.
	Commands Commands
	// Faults injects faults into the provider, for RunFaults.
	Faults Faults
	// Unsupported lists the abilities that the driver lacks.
	Unsupported []Ability
	// WaitLimit bounds how long the provider may take for any operation. Default 2 min.
	WaitLimit time.Duration
}

// Ability is a feature that not every driver has.
type Ability string

// The abilities that a driver may lack.
const (
	ExitSnapshots Ability = "exit snapshots"
	ImageNames    Ability = "image names"
	ImageLists    Ability = "image lists"
	OwnNetworks   Ability = "own networks"
)

// Call is a call to the provider into which Faults can inject a fault.
type Call string

// The calls for which the suite injects faults.
const (
	Create    Call = "create"
	Terminate Call = "terminate"
	Snapshot  Call = "snapshot"
	ReadFile  Call = "read file"
	Wait      Call = "wait" // waiting for a process
)

// Faults injects faults into a provider. A fault affects the next call of its kind, once.
type Faults interface {
	// Lose makes the provider execute the call and lose the response: the caller gets an error.
	Lose(t *testing.T, c Call)
	// Delay delays the response.
	Delay(t *testing.T, c Call, d time.Duration)
	// Mislead makes the response "not found", whatever exists.
	Mislead(t *testing.T, c Call)
}

// Commands are programs of a sandbox. Each returns an argv.
type Commands struct {
	Exit     func(code int) []string              // exits with the code
	Cat      func() []string                      // copies its input to its output without buffering
	Count    func() []string                      // prints the number of bytes of its input
	Print    func(stdout, stderr string) []string // prints on both streams
	Zeros    func(n int) []string                 // prints n zero bytes
	Getenv   func(name string) []string           // prints a variable
	Getwd    func() []string                      // prints its directory
	Sleep    func(d time.Duration) []string       // sleeps
	KillSelf func() []string                      // kills itself with SIGKILL
	Mode     func(path string) []string           // prints the permission bits of a file in octal
	Remove   func(path string) []string           // removes a file
	Put      func(path, content string) []string  // writes a file
	Tick     func(a, b string) []string           // writes 1, 2, 3, … to a, then b, forever
	Connect  func(ip string, port int) []string   // connects; needed unless OwnNetworks is Unsupported
}

// Shell returns the commands for a sandbox with a POSIX shell and coreutils.
func Shell() Commands {
	sh := func(script string, args ...string) []string {
		return append([]string{"sh", "-c", script, "sh"}, args...)
	}
	return Commands{
		Exit:     func(code int) []string { return sh(fmt.Sprintf("exit %d", code)) },
		Cat:      func() []string { return []string{"cat"} },
		Count:    func() []string { return sh(`wc -c | tr -d ' \n'`) },
		Print:    func(o, e string) []string { return sh(`printf %s "$1"; printf %s "$2" >&2`, o, e) },
		Zeros:    func(n int) []string { return []string{"head", "-c", fmt.Sprint(n), "/dev/zero"} },
		Getenv:   func(name string) []string { return sh(`eval "printf %s \"\$$1\""`, name) },
		Getwd:    func() []string { return sh(`printf %s "$PWD"`) },
		Sleep:    func(d time.Duration) []string { return []string{"sleep", fmt.Sprint(d.Seconds())} },
		KillSelf: func() []string { return sh(`kill -9 $$`) },
		Mode:     func(path string) []string { return sh(`stat -c %a "$1" | tr -d '\n'`, path) },
		Remove:   func(path string) []string { return []string{"rm", path} },
		Put: func(path, content string) []string {
			return sh(`mkdir -p "${1%/*}" && printf %s "$2" > "$1"`, path, content)
		},
		Connect: func(ip string, port int) []string {
			return []string{"bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/%s/%d", ip, port)}
		},
		Tick: func(a, b string) []string {
			return sh(`i=0; while :; do i=$((i+1)); echo $i > "$1"; echo $i > "$2"; done`, a, b)
		},
	}
}

// bench is the environment of a case.
type bench struct {
	Harness
	// provider and second belong to one installation, with Driver and Second; foreign belongs to
	// another one, with Driver.
	provider, second, foreign *sandbox.Provider
}

func setup(t *testing.T, make func(t *testing.T) Harness) *bench {
	t.Helper()
	h := make(t)
	if h.WaitLimit == 0 {
		h.WaitLimit = 2 * time.Minute
	}
	id := session.NewID("")
	const poll = 100 * time.Millisecond
	return &bench{
		Harness:  h,
		provider: sandbox.NewProvider(h.Driver, sandbox.Options{Installation: "a" + id, PollInterval: poll}),
		second:   sandbox.NewProvider(h.Second, sandbox.Options{Installation: "a" + id, PollInterval: poll}),
		foreign:  sandbox.NewProvider(h.Driver, sandbox.Options{Installation: "b" + id, PollInterval: poll}),
	}
}

func (b *bench) ctx(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), b.WaitLimit)
	t.Cleanup(cancel)
	return ctx
}

func (b *bench) lacks(a Ability) bool {
	for _, u := range b.Unsupported {
		if u == a {
			return true
		}
	}
	return false
}

// spec describes the first sandbox of a new session.
func (b *bench) spec() sandbox.Spec {
	return sandbox.Spec{
		Session: session.NewID(session.SessionPrefix), Generation: 1, Image: b.Image, Timeout: 10 * time.Minute,
	}
}

// sandbox creates a sandbox that ends with the test.
func (b *bench) sandbox(t *testing.T) *sandbox.Sandbox {
	t.Helper()
	return b.create(t, b.spec())
}

func (b *bench) create(t *testing.T, spec sandbox.Spec) *sandbox.Sandbox {
	t.Helper()
	sb, adopted, err := b.provider.Create(b.ctx(t), spec)
	require.NoError(t, err)
	require.False(t, adopted)
	b.terminateAfter(t, sb)
	return sb
}

func (b *bench) terminateAfter(t *testing.T, sb *sandbox.Sandbox) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), b.WaitLimit)
		defer cancel()
		if err := sb.Terminate(ctx); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
}

// deleteAfter deletes an image after the test.
func (b *bench) deleteAfter(t *testing.T, image string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), b.WaitLimit)
		defer cancel()
		if err := b.provider.DeleteImage(ctx, image); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
}

func (b *bench) snapshot(t *testing.T, sb *sandbox.Sandbox) string {
	t.Helper()
	image, err := sb.Snapshot(b.ctx(t), sandbox.SnapshotSpec{})
	require.NoError(t, err)
	require.NotEmpty(t, image)
	b.deleteAfter(t, image)
	return image
}

// run runs a command that must succeed.
func (b *bench) run(t *testing.T, sb *sandbox.Sandbox, argv []string) sandbox.Result {
	t.Helper()
	res, err := sb.Run(b.ctx(t), sandbox.RunSpec{Argv: argv})
	require.NoError(t, err)
	require.Zero(t, res.Code, "stderr: %s", res.Stderr)
	return res
}

func (b *bench) write(t *testing.T, sb *sandbox.Sandbox, path, content string) {
	t.Helper()
	require.NoError(t, sb.WriteFile(b.ctx(t), path, []byte(content), 0))
}

func (b *bench) read(t *testing.T, sb *sandbox.Sandbox, path string) string {
	t.Helper()
	data, err := sb.ReadFile(b.ctx(t), path)
	require.NoError(t, err)
	return string(data)
}

func requireCode(t *testing.T, want sandbox.Code, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, want, sandbox.CodeOf(err), "error: %v", err)
}

// ends waits until the provider reports that the sandbox has ended.
func (b *bench) ends(t *testing.T, sb *sandbox.Sandbox) sandbox.Status {
	t.Helper()
	var st sandbox.Status
	require.Eventually(t, func() bool {
		var err error
		st, err = sb.Poll(t.Context())
		return err == nil && !st.Running
	}, b.WaitLimit, 20*time.Millisecond)
	return st
}
