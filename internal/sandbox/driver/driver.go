package driver

import (
	"context"
	"io"
	"io/fs"
	"iter"
	"time"

	"github.com/overwinter-dev/overwinter/internal/hostports"
)

// Driver forwards calls to a provider of sandboxes. All methods may be called concurrently, return
// soon after ctx ends, and fail with an *Error.
//
// A call may fail with Timeout or Unavailable although it was executed, if the response was lost.
// Callers repeat Create under the same name and find the first sandbox. Terminate, WriteFile and
// reads can be repeated without effect; a repeated Snapshot creates another image, a repeated Exec
// another process.
type Driver interface {
	// Describe returns a description of the driver, without a request to the provider.
	Describe() Description

	// Create starts a sandbox and returns its id. It fails with NameTaken if a running sandbox has
	// the name, and with Gone if the image does not exist.
	Create(ctx context.Context, r CreateRequest) (id string, err error)
	// Lookup returns the running sandbox with the name, or Gone if there is none.
	Lookup(ctx context.Context, name string) (Listing, error)
	// List yields the running sandboxes with all these tags. It fetches and holds one page of the
	// provider at a time. An error is the last value that it yields.
	List(ctx context.Context, tags map[string]string) iter.Seq2[Listing, error]

	// Poll reports whether the sandbox is running, and how it ended, without a request to the
	// sandbox itself. It fails with Gone if the provider does not know the id (any more).
	Poll(ctx context.Context, id string) (Status, error)
	// Terminate kills everything in the sandbox and returns when that is done. It has no effect on
	// a sandbox that has ended, and fails with Gone if the id is unknown.
	Terminate(ctx context.Context, id string) error

	// Exec starts a process; ctx applies only to the start. For a sandbox that has ended it fails
	// with Gone or Conflict, or with Unavailable if the driver does not know. An argv that cannot
	// be executed is Invalid here, or gives exit code 126 or 127 from Wait.
	Exec(ctx context.Context, id string, r ExecRequest) (Exec, error)
	// WriteFile replaces the file atomically, creates the directories above it, and gives it the
	// permission bits of mode.
	WriteFile(ctx context.Context, id, path string, data []byte, mode fs.FileMode) error
	// ReadFile returns the file, or NoFile if it does not exist.
	ReadFile(ctx context.Context, id, path string) ([]byte, error)

	// Snapshot creates an image of all files at one moment, which is kept until it is deleted. It
	// fails with Timeout if it is not done within budget.
	Snapshot(ctx context.Context, id string, budget time.Duration) (imageID string, err error)
	// ExitSnapshot returns the image that the provider created when the sandbox ended, and waits
	// for it for up to budget. It fails with Timeout if the image is still being created, with Gone
	// if there will never be one, and with Unsupported if the driver has no exit snapshots.
	ExitSnapshot(ctx context.Context, id string, budget time.Duration) (imageID string, err error)

	// ImageExists returns nil if a sandbox can be created from the image, else Gone.
	ImageExists(ctx context.Context, imageID string) error
	// DeleteImage deletes an image. It fails with Gone if there is none.
	DeleteImage(ctx context.Context, imageID string) error
	// NameImage gives the image a name that every client of the provider can look up. A name that
	// is already in use moves to this image.
	NameImage(ctx context.Context, imageID, name string) error
	// ImageByName returns the image with the name, or Gone if there is none.
	ImageByName(ctx context.Context, name string) (imageID string, err error)

	// Close releases the driver's local resources. Sandboxes continue to run.
	Close() error
}

// ImageLister is implemented by drivers that may be able to list images.
type ImageLister interface {
	// ListImages returns the images that were created from sandboxes with all these tags. It fails
	// with Unsupported if the provider has no such list.
	ListImages(ctx context.Context, tags map[string]string) ([]ImageListing, error)
}

// ImageListing is an image in a list.
type ImageListing struct {
	ID      string
	Created time.Time
	Tags    map[string]string // of the sandbox that it was created from
	Exit    bool              // the provider created it when the sandbox ended
}

// Expirer is implemented by drivers whose provider can delete a snapshot after a lifetime.
type Expirer interface {
	// SnapshotFor is Snapshot for an image with a lifetime in whole seconds. It fails with Invalid
	// if the provider does not accept the lifetime.
	SnapshotFor(ctx context.Context, id string, budget, lifetime time.Duration) (imageID string, err error)
}

// Description is a driver's description for a health check.
type Description struct {
	Driver    string // "modal", "memory"
	Isolation string // what isolates sandboxes: "gvisor", "namespaces", "none", …
}

// CreateRequest describes a sandbox to create. All fields have been validated.
type CreateRequest struct {
	Name    string            // unique among running sandboxes
	Tags    map[string]string // at least one
	Image   string            // an image id of this provider, or a registry tag
	Command []string          // first process; if empty there is none, and the sandbox only waits
	Env     map[string]string
	Workdir string        // absolute; if empty, the image's own
	Timeout time.Duration // lifetime of the sandbox in whole seconds
	// ExitSnapshot makes the provider keep the files when the sandbox ends.
	ExitSnapshot bool
}

// Collect returns everything that a list yields before an error, and the error.
func Collect[T any](list iter.Seq2[T, error]) (all []T, err error) {
	for item, err := range list {
		if err != nil {
			return all, err
		}
		all = append(all, item)
	}
	return all, nil
}

// Listing is a running sandbox in a list.
type Listing struct {
	ID   string
	Name string // empty if the provider does not report it
	Tags map[string]string
}

// Exit codes of a sandbox that its provider ended.
const (
	ExitLifetime   = 124 // its timeout expired
	ExitTerminated = 137 // it was terminated
	// The sandbox exceeded a limit of the machine that the provider enforces; see Status.Limit.
	ExitMemory = 152
	ExitDisk   = 153
	ExitCPU    = 154
)

// Status is the state of a sandbox.
type Status struct {
	Running  bool
	ExitCode int // of the first process, or one of the Exit constants; 0 while it is running
	// Limit is the resource whose limit the sandbox exceeded, "disk" or "memory", if the provider
	// ended it for that. Reason is a description.
	Limit, Reason string
}

// ExecRequest describes a process to start.
type ExecRequest struct {
	Argv    []string
	Dir     string // absolute; if empty, the sandbox's own
	Env     map[string]string
	Timeout time.Duration // whole seconds, at least one, after which the process is killed
}

// Exec is a started process. One goroutine may write, one may read each stream and one may wait,
// concurrently.
type Exec interface {
	// Stdin is the process's standard input. Writing to a process that has exited fails.
	Stdin() io.WriteCloser
	// Stdout and Stderr end with io.EOF. Closing one unblocks a Read.
	Stdout() io.ReadCloser
	Stderr() io.ReadCloser
	// Wait returns the exit code, 128+n if signal n killed the process. It returns when ctx ends. A
	// process that exceeded its timeout gives Timeout or the exit code of the kill.
	Wait(ctx context.Context) (code int, err error)
}

// Networked is implemented by drivers that may know the network of their sandboxes.
type Networked interface {
	// Network describes the network. It fails with Unsupported if sandboxes share the network of
	// this machine, or if the provider does not report it.
	Network(ctx context.Context) (Network, error)
	// Refusals returns the refused connections of a sandbox after the given number, oldest first,
	// and the number to continue from. The first call passes 0. The provider may keep only the
	// latest ones. It fails with Unsupported like Network, and with Gone if the provider does not
	// know the sandbox.
	Refusals(ctx context.Context, id string, after int64) (refusals []Refusal, last int64, err error)
}

// Network describes the network of sandboxes that have their own.
type Network struct {
	HostName  string        // reaches this machine's loopback interface
	HostPorts hostports.Set // on these ports
}

// Refusal counts the connections to one destination that a sandbox's network refused.
type Refusal struct {
	Time     time.Time // of the first refusal
	Host     string    // the name that the sandbox resolved, if known
	IP       string    // empty if there were too many destinations to count separately
	Port     uint16
	Protocol string // "tcp", "udp"
	Verdict  string // "refused" by the policy, or "limited" if the sandbox has too many connections
	Count    int
}
