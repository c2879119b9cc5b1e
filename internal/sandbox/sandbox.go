package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
)

// Timeouts of calls without one of the caller.
const (
	pollTimeout      = 5 * time.Second // of a Poll that confirms a death
	terminateTimeout = 2 * time.Minute
	fileTimeout      = 2 * time.Minute
)

// DefaultSnapshotTimeout is the default timeout of a snapshot.
const DefaultSnapshotTimeout = 5 * time.Minute

// Sandbox is one sandbox of a provider, running or not. Its methods may be called concurrently.
type Sandbox struct {
	p  *Provider
	id string
}

// ID is the provider's id of the sandbox.
func (s *Sandbox) ID() string { return s.id }

// Status is the state of a sandbox.
type Status = driver.Status

// Poll asks the provider whether the sandbox is running, without a request to the sandbox. It fails
// with Gone if the provider does not know it (any more).
func (s *Sandbox) Poll(ctx context.Context) (Status, error) {
	st, err := s.p.drv.Poll(ctx, s.id)
	return st, fault(ctx, "poll", s.id, err)
}

// SnapshotSpec describes a snapshot.
type SnapshotSpec struct {
	// Timeout bounds the snapshot. Default 5 min.
	Timeout time.Duration
	// Lifetime makes the provider delete the image after that time, if it can. Default: the image
	// is kept until it is deleted.
	Lifetime time.Duration
}

// Snapshot creates an image of all files at one moment. After a Timeout, the image may still be
// created.
func (s *Sandbox) Snapshot(ctx context.Context, spec SnapshotSpec) (imageID string, err error) {
	budget := wholeSeconds(spec.Timeout, DefaultSnapshotTimeout)
	ctx, cancel := within(ctx, budget+grace, "snapshot")
	defer cancel()
	expirer, ok := s.p.drv.(driver.Expirer)
	if ok && spec.Lifetime > 0 {
		imageID, err = expirer.SnapshotFor(ctx, s.id, budget, wholeSeconds(spec.Lifetime, 0))
	}
	if !ok || spec.Lifetime == 0 || refuses(err) {
		imageID, err = s.p.drv.Snapshot(ctx, s.id, budget)
	}
	return imageID, s.settle(ctx, "snapshot", err)
}

// ExitSnapshot returns the image that the provider created from the files when the sandbox ended.
// It waits for an image that is being created. It fails with Conflict while the sandbox is running,
// and with Gone if there is no such image.
func (s *Sandbox) ExitSnapshot(ctx context.Context) (imageID string, err error) {
	const op = "exit snapshot"
	ctx, cancel := within(ctx, DefaultSnapshotTimeout+grace, op)
	defer cancel()
	st, err := s.p.drv.Poll(ctx, s.id)
	if err != nil {
		return "", fault(ctx, op, s.id, err)
	}
	if st.Running {
		return "", driver.Errorf(Conflict, op, s.id, "the sandbox runs")
	}
	imageID, err = s.p.drv.ExitSnapshot(ctx, s.id, DefaultSnapshotTimeout)
	return imageID, fault(ctx, op, s.id, err)
}

// refuses reports whether err means that a lifetime is not accepted, and not that the sandbox or
// its provider is unavailable.
func refuses(err error) bool {
	switch driver.CodeOf(err) {
	case Invalid, Conflict, Denied, Unsupported:
		return true
	}
	return false
}

// Terminate ends the sandbox with everything in it and returns when the provider reports its end. A
// sandbox that is already gone counts as terminated.
func (s *Sandbox) Terminate(ctx context.Context) error {
	ctx, cancel := within(ctx, terminateTimeout, "terminate")
	defer cancel()
	err := s.p.drv.Terminate(ctx, s.id)
	if driver.CodeOf(err) == Gone {
		return nil
	}
	return fault(ctx, "terminate", s.id, err)
}

// WriteFile replaces a file atomically and creates the directories above it. The mode is its
// permission bits; zero means 0644.
func (s *Sandbox) WriteFile(ctx context.Context, name string, data []byte, mode fs.FileMode) error {
	const op = "write file"
	if err := checkPath(name); err != nil {
		return driver.Errorf(Invalid, op, s.id, "%w", err)
	}
	if mode == 0 {
		mode = 0o644
	}
	if mode != mode.Perm() {
		return driver.Errorf(Invalid, op, s.id, "mode %v has more than permission bits", mode)
	}
	ctx, cancel := within(ctx, fileTimeout, op)
	defer cancel()
	return s.settle(ctx, op, s.p.drv.WriteFile(ctx, s.id, name, data, mode))
}

// ReadFile returns a file, or NoFile if it does not exist.
func (s *Sandbox) ReadFile(ctx context.Context, name string) ([]byte, error) {
	const op = "read file"
	if err := checkPath(name); err != nil {
		return nil, driver.Errorf(Invalid, op, s.id, "%w", err)
	}
	ctx, cancel := within(ctx, fileTimeout, op)
	defer cancel()
	data, err := s.p.drv.ReadFile(ctx, s.id, name)
	return data, s.settle(ctx, op, err)
}

// settle converts an error from inside the sandbox. A dead sandbox and an unreachable one give the
// same errors, so it polls the provider: only the provider can determine that the sandbox is gone.
func (s *Sandbox) settle(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	switch driver.CodeOf(err) {
	case Gone, Conflict, Unavailable, Timeout:
	default:
		return fault(ctx, op, s.id, err)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return fault(ctx, op, s.id, err) // the caller has stopped waiting
	}
	// The time may have expired, but whether the sandbox is running is worth a little more.
	pollCtx, cancel := within(context.WithoutCancel(ctx), pollTimeout, "confirm death")
	defer cancel()
	st, pollErr := s.p.drv.Poll(pollCtx, s.id)
	switch {
	case pollErr == nil && !st.Running:
		return &Error{Code: Gone, Op: op, ID: s.id, Err: fmt.Errorf("the sandbox has ended with code %d: %w", st.ExitCode, err)}
	case driver.CodeOf(pollErr) == Gone:
		return &Error{Code: Gone, Op: op, ID: s.id, Err: fmt.Errorf("the provider does not know the sandbox: %w", err)}
	}
	if driver.CodeOf(err) == Gone && ctx.Err() == nil {
		return &Error{Code: Unavailable, Op: op, ID: s.id, Err: errors.Join(err, pollErr)}
	}
	return fault(ctx, op, s.id, err)
}

// within returns a context whose error names the step that timed out.
func within(ctx context.Context, d time.Duration, op string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, &deadlineError{op: op, after: d})
}

type deadlineError struct {
	op    string
	after time.Duration
}

func (e *deadlineError) Error() string { return fmt.Sprintf("%s took more than %v", e.op, e.after) }

// Unwrap lets callers find the expired deadline.
func (e *deadlineError) Unwrap() error { return context.DeadlineExceeded }

func checkPath(name string) error {
	if !path.IsAbs(name) || path.Clean(name) != name || name == "/" || strings.ContainsRune(name, 0) {
		return fmt.Errorf("%q is not the clean absolute path of a file", name)
	}
	return nil
}

func checkEnv(env map[string]string) error {
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return fmt.Errorf("%q can not be an environment variable", k)
		}
	}
	return nil
}
