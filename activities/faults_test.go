package activities_test

import (
	"context"
	"io"
	"iter"
	"strings"
	"sync"
	"time"

	"go.temporal.io/sdk/converter"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/backlog"
	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/image"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

type converterValues = converter.EncodedValues

// faulty injects faults into chosen calls of a driver. An unset hook does nothing.
type faulty struct {
	driver.Driver

	mu          sync.Mutex
	exec        func(r driver.ExecRequest) error // before a process is started
	deaf        string                           // processes stop reading their input before this text
	snapshot    func(id string) error            // before a snapshot is made
	imageExists func(id string) error
	list        func() error
	deleteImage func(id string) error
	terminate   func(id string) error // before a sandbox is terminated
	running     int                   // the number of answers that report a running sandbox, whether it runs or not
	unlisted    bool                  // listings are empty
	execs       [][]string            // the argv of every exec
}

func (f *faulty) set(change func(f *faulty)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *faulty) repair() {
	f.set(func(f *faulty) {
		f.deaf = ""
		f.exec, f.snapshot, f.imageExists, f.list, f.deleteImage, f.terminate, f.unlisted = nil, nil, nil, nil, nil, nil, false
	})
}

func (f *faulty) argvs() [][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([][]string(nil), f.execs...)
}

func (f *faulty) Exec(ctx context.Context, id string, r driver.ExecRequest) (driver.Exec, error) {
	f.mu.Lock()
	hook := f.exec
	f.execs = append(f.execs, r.Argv)
	deaf := f.deaf
	f.mu.Unlock()
	if hook != nil {
		if err := hook(r); err != nil {
			return nil, err
		}
	}
	process, err := f.Driver.Exec(ctx, id, r)
	if err != nil || deaf == "" {
		return process, err
	}
	ended := make(chan struct{})
	return &deafExec{
		Exec:   process,
		stdin:  &deafInput{WriteCloser: process.Stdin(), before: deaf, ended: ended},
		stdout: &deafOutput{ReadCloser: process.Stdout(), end: sync.OnceFunc(func() { close(ended) })},
	}, nil
}

// deafExec is a process that stops reading its input.
type deafExec struct {
	driver.Exec
	stdin  *deafInput
	stdout *deafOutput
}

func (e *deafExec) Stdin() io.WriteCloser { return e.stdin }
func (e *deafExec) Stdout() io.ReadCloser { return e.stdout }

// deafOutput ends a write that blocks when the link to the process is closed.
type deafOutput struct {
	io.ReadCloser
	end func()
}

func (o *deafOutput) Close() error {
	o.end()
	return o.ReadCloser.Close()
}

type deafInput struct {
	io.WriteCloser
	before string
	ended  <-chan struct{} // of the link to the process
}

func (i *deafInput) Write(p []byte) (int, error) {
	if strings.Contains(string(p), i.before) {
		<-i.ended
		return 0, io.ErrClosedPipe
	}
	return i.WriteCloser.Write(p)
}

func (f *faulty) Snapshot(ctx context.Context, id string, budget time.Duration) (string, error) {
	f.mu.Lock()
	hook := f.snapshot
	f.mu.Unlock()
	if hook != nil {
		if err := hook(id); err != nil {
			return "", err
		}
	}
	return f.Driver.Snapshot(ctx, id, budget)
}

func (f *faulty) ImageExists(ctx context.Context, id string) error {
	f.mu.Lock()
	hook := f.imageExists
	f.mu.Unlock()
	if hook != nil {
		if err := hook(id); err != nil {
			return err
		}
	}
	return f.Driver.ImageExists(ctx, id)
}

func (f *faulty) DeleteImage(ctx context.Context, id string) error {
	f.mu.Lock()
	hook := f.deleteImage
	f.mu.Unlock()
	if hook != nil {
		if err := hook(id); err != nil {
			return err
		}
	}
	return f.Driver.DeleteImage(ctx, id)
}

func (f *faulty) List(ctx context.Context, tags map[string]string) iter.Seq2[driver.Listing, error] {
	return func(yield func(driver.Listing, error) bool) {
		f.mu.Lock()
		hook, unlisted := f.list, f.unlisted
		f.mu.Unlock()
		if unlisted {
			return
		}
		if hook != nil {
			if err := hook(); err != nil {
				yield(driver.Listing{}, err)
				return
			}
		}
		f.Driver.List(ctx, tags)(yield)
	}
}

// SnapshotFor implements driver.Expirer where the driver does.
func (f *faulty) SnapshotFor(ctx context.Context, id string, budget, lifetime time.Duration) (string, error) {
	expirer, ok := f.Driver.(driver.Expirer)
	if !ok {
		return f.Snapshot(ctx, id, budget)
	}
	f.mu.Lock()
	hook := f.snapshot
	f.mu.Unlock()
	if hook != nil {
		if err := hook(id); err != nil {
			return "", err
		}
	}
	return expirer.SnapshotFor(ctx, id, budget, lifetime)
}

// Network forwards the call, because a wrapped driver only has the methods of driver.Driver.
func (f *faulty) Network(ctx context.Context) (driver.Network, error) {
	networked, ok := f.Driver.(driver.Networked)
	if !ok {
		return driver.Network{}, driver.Errorf(driver.Unsupported, "describe network", "", "the driver does not know it")
	}
	return networked.Network(ctx)
}

// Refusals forwards the call.
func (f *faulty) Refusals(ctx context.Context, id string, after int64) ([]driver.Refusal, int64, error) {
	networked, ok := f.Driver.(driver.Networked)
	if !ok {
		return nil, 0, driver.Errorf(driver.Unsupported, "list refusals", id, "the driver does not know them")
	}
	return networked.Refusals(ctx, id, after)
}

func (f *faulty) ListImages(ctx context.Context, tags map[string]string) ([]driver.ImageListing, error) {
	lister, ok := f.Driver.(driver.ImageLister)
	if !ok {
		return nil, driver.Errorf(driver.Unsupported, "list images", "", "the driver cannot")
	}
	return lister.ListImages(ctx, tags)
}

// steps are the steps by which a turn becomes durable, each with a hook before and after it.
type steps struct {
	activities.Store
	log    *eventlog.Appender
	driver *faulty

	mu     sync.Mutex
	before func(step string, a *eventlog.Append) error
	after  func(step string)
}

func (s *steps) set(before func(step string, a *eventlog.Append) error, after func(step string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.after = before, after
}

func (s *steps) take(step string, a *eventlog.Append, do func() error) error {
	s.mu.Lock()
	before, after := s.before, s.after
	s.mu.Unlock()
	if before != nil {
		if err := before(step, a); err != nil {
			return err
		}
	}
	err := do()
	if after != nil {
		after(step)
	}
	return err
}

// The steps.
const (
	stepAttach     = "attach"
	stepTranscript = "transcript"
	stepRevert     = "revert"
	stepRevertTo   = "revert to"
	stepRevertDue  = "revert due"
	stepFiles      = "files"
	stepKnown      = "known files"
	stepAppend     = "append"
	stepEnd        = "end"
	stepLocate     = "locate"
	stepClaim      = "claim"
	stepGreet      = "greet" // of lateGreetings
	stepLeave      = "leave"
	stepSnapshot   = "snapshot" // its record
	stepSandboxes  = "sandboxes"
	stepIdle       = "idle" // whether a run is open
)

func (s *steps) RunAttach(ctx context.Context, runID, token string, by run.Dispatch, expected func(run.Start)) (start run.Start, err error) {
	err = s.take(stepAttach, nil, func() error {
		start, err = s.Store.RunAttach(ctx, runID, token, by, expected)
		return err
	})
	return start, err
}

func (s *steps) TranscriptAppend(ctx context.Context, segments []transcript.Segment) error {
	return s.take(stepTranscript, nil, func() error { return s.Store.TranscriptAppend(ctx, segments) })
}

func (s *steps) FilesKnown(ctx context.Context, sessionID string) (known []workspacefile.Known, err error) {
	err = s.take(stepKnown, nil, func() error {
		known, err = s.Store.FilesKnown(ctx, sessionID)
		return err
	})
	return known, err
}

func (s *steps) SessionRevert(ctx context.Context, sessionID string, generation int64, runIDs []string, files []transcript.File) error {
	return s.take(stepRevert, nil, func() error { return s.Store.SessionRevert(ctx, sessionID, generation, runIDs, files) })
}

func (s *steps) RevertDue(ctx context.Context, sessionID string) (due bundle.RevertDue, ok bool, err error) {
	err = s.take(stepRevertDue, nil, func() error {
		due, ok, err = s.Store.RevertDue(ctx, sessionID)
		return err
	})
	return due, ok, err
}

func (s *steps) SessionRevertTo(ctx context.Context, sessionID string, generation int64, commandID string) error {
	return s.take(stepRevertTo, nil, func() error { return s.Store.SessionRevertTo(ctx, sessionID, generation, commandID) })
}

func (s *steps) FilesAppend(ctx context.Context, b workspacefile.Batch) error {
	return s.take(stepFiles, nil, func() error { return s.Store.FilesAppend(ctx, b) })
}

func (s *steps) RunEnd(ctx context.Context, ending run.Ending) (run run.Run, err error) {
	err = s.take(stepEnd, ending.Last, func() error {
		run, err = s.Store.RunEnd(ctx, ending)
		return err
	})
	return run, err
}

func (s *steps) RunClaim(ctx context.Context, c run.Claim) (claimed run.Claimed, err error) {
	err = s.take(stepClaim, nil, func() error {
		claimed, err = s.Store.RunClaim(ctx, c)
		return err
	})
	return claimed, err
}

func (s *steps) RunOfClaim(ctx context.Context, sessionID, claimID string) (found run.Located, ok bool, err error) {
	err = s.take(stepLocate, nil, func() error {
		found, ok, err = s.Store.RunOfClaim(ctx, sessionID, claimID)
		return err
	})
	return found, ok, err
}

func (s *steps) AttendantLeave(ctx context.Context, sessionID, attendant, workflowRunID string) (look *session.Look, err error) {
	err = s.take(stepLeave, nil, func() error {
		look, err = s.Store.AttendantLeave(ctx, sessionID, attendant, workflowRunID)
		return err
	})
	return look, err
}

func (s *steps) SandboxesOpen(ctx context.Context, sessionID string) (rows []session.SandboxRow, err error) {
	err = s.take(stepSandboxes, nil, func() error {
		rows, err = s.Store.SandboxesOpen(ctx, sessionID)
		return err
	})
	return rows, err
}

func (s *steps) RunOpen(ctx context.Context, sessionID string) (runID string, err error) {
	err = s.take(stepIdle, nil, func() error {
		runID, err = s.Store.RunOpen(ctx, sessionID)
		return err
	})
	return runID, err
}

func (s *steps) RunWorking(ctx context.Context, sessionID string) (runID string, err error) {
	err = s.take(stepIdle, nil, func() error {
		runID, err = s.Store.RunWorking(ctx, sessionID)
		return err
	})
	return runID, err
}

func (s *steps) SnapshotMade(ctx context.Context, intent image.Intent, snapshotID string) error {
	return s.take(stepSnapshot, nil, func() error { return s.Store.SnapshotMade(ctx, intent, snapshotID) })
}

// logSteps is the log of a bundle.
type logSteps struct{ *steps }

func (l logSteps) Append(ctx context.Context, a eventlog.Append) error {
	return l.take(stepAppend, &a, func() error { return l.log.Append(ctx, a) })
}

func (l logSteps) Position(ctx context.Context, sessionID string) (int64, error) {
	return l.log.Position(ctx, sessionID)
}

// signalLog records the signals to workflows.
type signalLog struct {
	mu        sync.Mutex
	signals   []contract.SandboxSignal
	closed    map[string]bool // sessions whose workflow is not open
	forgotten map[string]bool // runs that their workflow does not know of
	fail      func(sessionID string) error
}

// set makes calls about sessions fail.
func (t *signalLog) set(fail func(sessionID string) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fail = fail
}

func (t *signalLog) SignalPrompt(context.Context, string, string, int64) error { return nil }

func (t *signalLog) SignalSandbox(_ context.Context, sessionID string, s contract.SandboxSignal) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fail != nil {
		if err := t.fail(sessionID); err != nil {
			return err
		}
	}
	t.signals = append(t.signals, s)
	return nil
}

// Revive opens a closed workflow, and signals an open one about a run that it does not know of.
func (t *signalLog) Revive(_ context.Context, s backlog.Attended) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fail != nil {
		if err := t.fail(s.SessionID); err != nil {
			return false, err
		}
	}
	closed := t.closed[s.SessionID] || s.RunID != "" && t.forgotten[s.RunID]
	delete(t.closed, s.SessionID)
	delete(t.forgotten, s.RunID)
	return closed, nil
}

func (t *signalLog) all() []contract.SandboxSignal {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]contract.SandboxSignal(nil), t.signals...)
}

func (f *faulty) Terminate(ctx context.Context, id string) error {
	f.mu.Lock()
	terminate := f.terminate
	f.mu.Unlock()
	if terminate != nil {
		if err := terminate(id); err != nil {
			return err
		}
	}
	return f.Driver.Terminate(ctx, id)
}

func (f *faulty) Poll(ctx context.Context, id string) (driver.Status, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running > 0 {
		f.running--
		return driver.Status{Running: true}, nil
	}
	return f.Driver.Poll(ctx, id)
}
