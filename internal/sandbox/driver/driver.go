package driver

import (
	"context"
	"io"
	"io/fs"
	"iter"
	"time"

	"github.com/overwinter-dev/overwinter/internal/hostports"
)

// Driver carries calls to a provider of sandboxes. All methods may be called by
// many goroutines at once, return soon after ctx ends, and fail with an *Error.
//
// A call may fail with Timeout or Unavailable although it was carried out: the
// answer was lost. Callers repeat Create under the same name and find the first
// sandbox; Terminate, WriteFile and the readings may simply be repeated; a
// repeated Snapshot makes another image, a repeated Exec another process.
type Driver interface {
	// Describe says what this is, without a request to the provider.
	Describe() Description

	// Create starts a sandbox and returns its id. NameTaken when a running
	// sandbox has the name, Gone when the image does not exist.
	Create(ctx context.Context, r CreateRequest) (id string, err error)
	// Lookup finds the running sandbox that has the name; Gone when there is none.
	Lookup(ctx context.Context, name string) (Listing, error)
	// List yields the running sandboxes that carry all these tags, one page of the provider after the
	// other: it holds one page at a time. An error is the last that it yields.
	List(ctx context.Context, tags map[string]string) iter.Seq2[Listing, error]

	// Poll says whether the sandbox runs, and how it ended. It does not touch the
	// sandbox itself. Gone when the provider does not know the id (any more).
	Poll(ctx context.Context, id string) (Status, error)
	// Terminate kills everything in the sandbox and returns when that is done. A sandbox that has
	// ended is unchanged. Gone when the id is not known.
	Terminate(ctx context.Context, id string) error

	// Exec starts a process; ctx is for the start alone. On a sandbox that has ended it fails with
	// Gone or Conflict; Unavailable if the driver cannot know. An argv that can not be executed is
	// Invalid here or an exit code of 126 or 127 from Wait.
	Exec(ctx context.Context, id string, r ExecRequest) (Exec, error)
	// WriteFile replaces the file atomically, so that half of it is never seen, makes the
	// directories above it, and gives it the permission bits of mode.
	WriteFile(ctx context.Context, id, path string, data []byte, mode fs.FileMode) error
	// ReadFile returns the file, or NoFile when it does not exist.
	ReadFile(ctx context.Context, id, path string) ([]byte, error)

	// Snapshot makes an image of all files as they are at one moment. It lives
	// until it is deleted. Timeout when it is not done within budget.
	Snapshot(ctx context.Context, id string, budget time.Duration) (imageID string, err error)
	// ExitSnapshot returns the image that the provider made when the sandbox
	// ended, waiting up to budget for it. Timeout when it is still being made, Gone
	// when there is none and never will be, Unsupported when the driver knows of no
	// such thing.
	ExitSnapshot(ctx context.Context, id string, budget time.Duration) (imageID string, err error)

	// ImageExists returns nil when a sandbox can be made of the image, else Gone.
	ImageExists(ctx context.Context, imageID string) error
	// DeleteImage deletes an image; Gone when there is none.
	DeleteImage(ctx context.Context, imageID string) error
	// NameImage gives the image a name that every client of the provider can
	// look up. A name that is in use moves to this image.
	NameImage(ctx context.Context, imageID, name string) error
	// ImageByName returns the image that has the name; Gone when none has.
	ImageByName(ctx context.Context, name string) (imageID string, err error)

	// Close frees what the driver holds here. Sandboxes run on.
	Close() error
}

// ImageLister is implemented by drivers that may be able to list images.
type ImageLister interface {
	// ListImages returns the images that were made of sandboxes with all these tags.
	// Unsupported where the provider has no such list.
	ListImages(ctx context.Context, tags map[string]string) ([]ImageListing, error)
}

// ImageListing is an image as a list shows it.
type ImageListing struct {
	ID      string
	Created time.Time
	Tags    map[string]string // of the sandbox that it was made of
	Exit    bool              // the provider made it when the sandbox ended
}

// Expirer is implemented by drivers that can have a provider delete a snapshot when
// its lifetime is over.
type Expirer interface {
	// SnapshotFor is Snapshot for an image with a lifetime of whole seconds. Invalid
	// where the provider does not take such a lifetime.
	SnapshotFor(ctx context.Context, id string, budget, lifetime time.Duration) (imageID string, err error)
}

// Description is what a health check shows of a driver.
type Description struct {
	Driver    string // "modal", "memory"
	Isolation string // what keeps sandboxes apart: "gvisor", "namespaces", "none", …
}

// CreateRequest asks for a sandbox. Every field was validated.
type CreateRequest struct {
	Name    string            // unique among running sandboxes
	Tags    map[string]string // at least one
	Image   string            // an image id of this provider, or a registry tag
	Command []string          // first process; empty: none, the sandbox only waits
	Env     map[string]string
	Workdir string        // absolute; empty: the image's own
	Timeout time.Duration // life of the sandbox in whole seconds
	// ExitSnapshot has the provider keep the files when the sandbox ends.
	ExitSnapshot bool
}

// Collect returns all that a list yields, up to its error.
func Collect[T any](list iter.Seq2[T, error]) (all []T, err error) {
	for item, err := range list {
		if err != nil {
			return all, err
		}
		all = append(all, item)
	}
	return all, nil
}

// Listing is a running sandbox as a list shows it.
type Listing struct {
	ID   string
	Name string // empty if the provider does not report it
	Tags map[string]string
}

// Exit codes of a sandbox that its provider ended.
const (
	ExitLifetime   = 124 // its timeout passed
	ExitTerminated = 137 // it was terminated
	// It exceeded a limit of the machine that the provider watches; Status.Limit says which.
	ExitMemory = 152
	ExitDisk   = 153
	ExitCPU    = 154
)

// Status is how a sandbox is.
type Status struct {
	Running  bool
	ExitCode int // of the first process, or one of the Exit constants; 0 while it runs
	// Limit is the resource whose limit the sandbox exceeded, "disk" or "memory", if the provider ended it for that;
	// Reason says so in words.
	Limit, Reason string
}

// ExecRequest asks for a process.
type ExecRequest struct {
	Argv    []string
	Dir     string // absolute; empty: the sandbox's own
	Env     map[string]string
	Timeout time.Duration // whole seconds, at least one: then the process is killed
}

// Exec is a started process. One goroutine may write, one read each stream and
// one wait, at the same time.
type Exec interface {
	// Write and Close work on the process's standard input. Writing to a process
	// that has ended fails.
	Stdin() io.WriteCloser
	// Stdout and Stderr end with io.EOF. Closing one ends a Read that blocks.
	Stdout() io.ReadCloser
	Stderr() io.ReadCloser
	// Wait returns the exit code, 128+n when signal n killed the process. It
	// returns when ctx ends. A process that ran over its timeout gives Timeout or
	// the code of its killing.
	Wait(ctx context.Context) (code int, err error)
}

// Networked is implemented by drivers that may know the network of their sandboxes.
type Networked interface {
	// Network describes it. Unsupported where sandboxes share the network of this machine,
	// or the provider says nothing about it.
	Network(ctx context.Context) (Network, error)
	// Refusals returns which connections of a sandbox were refused after the given number,
	// oldest first, and the number to continue from. The first call has 0. The provider may
	// keep only the last ones. Unsupported as for Network, Gone when the provider does not
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
	Time     time.Time // of the first
	Host     string    // the name that the sandbox resolved, if it is known
	IP       string    // empty if there were too many destinations to count each
	Port     uint16
	Protocol string // "tcp", "udp"
	Verdict  string // "refused" by the policy, "limited": the sandbox has too many connections
	Count    int
}
