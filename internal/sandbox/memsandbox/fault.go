package memsandbox

import (
	"context"
	"errors"
	"time"

	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
)

// Op is a call into which faults can be injected.
type Op string

// The calls of a driver.
const (
	OpCreate       Op = "create"
	OpLookup       Op = "lookup"
	OpList         Op = "list"
	OpPoll         Op = "poll"
	OpTerminate    Op = "terminate"
	OpExec         Op = "exec"
	OpWait         Op = "wait" // waiting for a process
	OpWriteFile    Op = "write_file"
	OpReadFile     Op = "read_file"
	OpSnapshot     Op = "snapshot"
	OpExitSnapshot Op = "exit_snapshot"
	OpImageExists  Op = "image_exists"
	OpDeleteImage  Op = "delete_image"
	OpNameImage    Op = "name_image"
	OpImageByName  Op = "image_by_name"
	OpListImages   Op = "list_images"
)

// Fault makes calls fail. The faults of an op are consumed in the order of injection.
type Fault struct {
	Op Op
	// N is how many calls it affects; 0 means one, a negative number all from now on.
	N int
	// Code is the error of the call. If empty, the call is only delayed.
	Code driver.Code
	// After executes the call and loses the response.
	After bool
	// Delay is the delay of the call.
	Delay time.Duration
	// Hang blocks the call until its caller gives up.
	Hang bool
}

var errInjected = errors.New("injected fault")

// Inject adds a fault.
func (d *Driver) Inject(f Fault) {
	if f.N == 0 {
		f.N = 1
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = append(d.faults, &f)
}

// ClearFaults removes all faults.
func (d *Driver) ClearFaults() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = nil
}

// Calls returns how often an op was called.
func (d *Driver) Calls(op Op) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[op]
}

// take counts a call and consumes a fault for it.
func (d *Driver) take(op Op) (Fault, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls[op]++
	for _, f := range d.faults {
		if f.Op != op || f.N == 0 {
			continue
		}
		if f.N > 0 {
			f.N--
		}
		return *f, true
	}
	return Fault{}, false
}

// call executes a call to the provider with an injected fault.
func call[T any](ctx context.Context, d *Driver, op Op, id string, do func() (T, error)) (T, error) {
	var none T
	ended := func() error {
		code := driver.Unavailable
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			code = driver.Timeout
		}
		return &driver.Error{Code: code, Op: string(op), ID: id, Err: ctx.Err()}
	}
	f, broken := d.take(op)
	if !broken {
		if ctx.Err() != nil {
			return none, ended()
		}
		return do()
	}
	if f.After {
		done, err := do()
		if err != nil {
			return none, err
		}
		do = func() (T, error) { return done, nil } // only once
	}
	if f.Hang {
		<-ctx.Done()
		return none, ended()
	}
	if f.Delay > 0 {
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return none, ended()
		}
	}
	if f.Code != "" {
		return none, &driver.Error{Code: f.Code, Op: string(op), ID: id, Err: errInjected}
	}
	return do()
}
