package child

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	probeFirst   = 10 * time.Millisecond // pause between the first probes of a starting child
	probeMost    = 200 * time.Millisecond
	probeTimeout = 3 * time.Second // of one probe
)

// child is one supervised program.
type child struct {
	spec       Spec
	supervisor *Supervisor
	logger     *slog.Logger
	log        *logFile

	pid        atomic.Int64 // 0 while no process runs
	ready      atomic.Bool
	firstReady chan struct{} // closed when it was ready for the first time
	done       chan struct{} // closed when it will not run again
	err        error         // why it failed, set before done is closed

	asked      chan struct{} // closed by stop
	askedOnce  sync.Once
	ordered    chan struct{} // closed by kill
	orderedOne sync.Once
}

func newChild(s *Supervisor, spec Spec) (*child, error) {
	c := &child{
		spec:       spec,
		supervisor: s,
		logger:     s.logger.With(slog.String("child", spec.Name)),
		firstReady: make(chan struct{}),
		done:       make(chan struct{}),
		asked:      make(chan struct{}),
		ordered:    make(chan struct{}),
	}
	var err error
	c.log, err = openLog(s.logDir, spec.Name, spec.Severity, c.show)
	return c, err
}

// show prints a line for the user. Output during a start or stop is only logged, because a child
// then complains about others that start and stop too.
func (c *child) show(level slog.Level, line []byte) {
	if level >= c.spec.EchoLevel && c.ready.Load() && !c.stopping() {
		c.supervisor.echo.line(c.spec.Name, level, line)
	}
}

// stop requests the end of the child.
func (c *child) stop() { c.askedOnce.Do(func() { close(c.asked) }) }

// kill kills it at once.
func (c *child) kill() {
	c.stop()
	c.orderedOne.Do(func() { close(c.ordered) })
}

func (c *child) stopping() bool {
	select {
	case <-c.asked:
		return true
	default:
		return false
	}
}

// supervise runs the program repeatedly until it is stopped or fails its first start. Its ctx never
// ends: only stop and kill end a child.
func (c *child) supervise(ctx context.Context) {
	defer close(c.done)
	var pauses backoff
	for {
		readyFor, err := c.runOnce(ctx)
		if c.stopping() {
			return
		}
		var final *firstStartError
		if errors.As(err, &final) {
			c.err = err
			return
		}
		pause := pauses.next(readyFor)
		c.logger.LogAttrs(ctx, slog.LevelWarn, "child ended and will be started again",
			slog.Any("error", err), slog.Duration("pause", pause))
		select {
		case <-time.After(pause):
		case <-c.asked:
			return
		}
	}
}

// firstStartError is a failure that a restart would repeat.
type firstStartError struct{ message string }

func (e *firstStartError) Error() string { return e.message }

// runOnce runs the program until it ends, and returns how long it was ready and why it ended.
func (c *child) runOnce(ctx context.Context) (readyFor time.Duration, err error) {
	if c.stopping() {
		return 0, errStopped
	}
	c.log.reset()
	p, err := startProcess(c.spec.Command, c.supervisor.spawner, c.log)
	if err != nil {
		return 0, c.startFailed(err.Error())
	}
	c.pid.Store(int64(p.cmd.Process.Pid))
	defer func() {
		c.ready.Store(false)
		c.pid.Store(0)
		c.supervisor.removeRecord(c.spec.Name)
	}()
	if err := c.writeRecord(p); err != nil {
		p.kill()
		return 0, c.startFailed(err.Error())
	}

	probing, cancel := context.WithCancel(ctx)
	defer cancel()
	probed := make(chan error, 1) // so that the goroutine ends without a receiver
	began := time.Now()
	go func() { probed <- c.probe(probing) }()
	select {
	case err := <-probed:
		if err == nil {
			break
		}
		p.kill()
		return 0, c.startFailed(fmt.Sprintf("not ready after %s: %v%s", c.spec.ReadyTimeout, err, c.lastWords()))
	case <-p.ended:
		if p.killed() {
			return 0, fmt.Errorf("%s while it started%s", p.status, c.lastWords())
		}
		return 0, c.startFailed(fmt.Sprintf("it ended with %s%s", p.status, c.lastWords()))
	case <-c.asked:
		c.end(ctx, p)
		return 0, errStopped
	}

	c.ready.Store(true)
	readySince := time.Now()
	c.logger.LogAttrs(ctx, slog.LevelDebug, "child is ready",
		slog.Int("pid", p.cmd.Process.Pid), slog.Duration("took", readySince.Sub(began)))
	if !c.wasReady() {
		close(c.firstReady)
	}
	select {
	case <-p.ended:
		return time.Since(readySince), fmt.Errorf("it ended with %s%s", p.status, c.lastWords())
	case <-c.asked:
		c.end(ctx, p)
		return time.Since(readySince), errStopped
	}
}

// wasReady reports whether the child has ever been ready. Only the supervising goroutine closes it.
func (c *child) wasReady() bool {
	select {
	case <-c.firstReady:
		return true
	default:
		return false
	}
}

// startFailed returns a final error if the first start failed.
func (c *child) startFailed(message string) error {
	if c.wasReady() {
		return errors.New(message)
	}
	return &firstStartError{message}
}

func (c *child) lastWords() string {
	words := c.log.lastWords()
	if words == "" {
		return " (log: " + c.log.path + ")"
	}
	return ": " + words + " (log: " + c.log.path + ")"
}

// writeRecord records the process for EndLeftovers. One that has already ended needs no record.
func (c *child) writeRecord(p *process) error {
	r, err := recordOf(p.cmd.Process.Pid, c.spec.StopSignal)
	if err != nil {
		return nil //nolint:nilerr // the caller that waits for the process notices its end
	}
	return r.write(recordPath(c.supervisor.runDir, c.spec.Name))
}

// probe returns nil when the child responds, or the last error.
func (c *child) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.spec.ReadyTimeout)
	defer cancel()
	for pause := probeFirst; ; pause = min(pause*3/2, probeMost) {
		attempt, cancelAttempt := context.WithTimeout(ctx, probeTimeout)
		err := c.spec.Ready(attempt)
		cancelAttempt()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// end stops the process: it requests the end, and kills the process after the timeout or on demand.
func (c *child) end(ctx context.Context, p *process) {
	p.signal(c.spec.StopSignal)
	deadline := time.NewTimer(c.spec.StopTimeout)
	defer deadline.Stop()
	select {
	case <-p.ended:
		return
	case <-c.ordered:
	case <-deadline.C:
		c.logger.LogAttrs(ctx, slog.LevelWarn, "child did not end in time and is killed",
			slog.Duration("timeout", c.spec.StopTimeout))
	}
	p.signalGroup(syscall.SIGKILL)
	p.kill()
}
