package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
)

// Options configure a Supervisor.
type Options struct {
	// RunDir holds a record of each running child. It must exist, and no other supervisor may use
	// it.
	RunDir string
	// LogDir holds NAME.log of each child and of its last three runs. It must exist.
	LogDir string
	// Echo receives the important lines, each preceded by its child's name. Default: discarded.
	Echo io.Writer
	// Color paints the names with terminal escapes.
	Color bool
	// Logger receives starts and ends. Default: discarded.
	Logger *slog.Logger
}

// Supervisor runs children. It is safe for concurrent use.
type Supervisor struct {
	runDir  string
	logDir  string
	logger  *slog.Logger
	echo    *echo
	spawner *spawner

	mu       sync.Mutex
	children map[string]*child
	killed   bool
}

// NewSupervisor returns a supervisor without children. Close it.
func NewSupervisor(o Options) *Supervisor {
	if o.Echo == nil {
		o.Echo = io.Discard
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Supervisor{
		runDir:   o.RunDir,
		logDir:   o.LogDir,
		logger:   o.Logger,
		echo:     &echo{w: o.Echo, color: o.Color},
		spawner:  newSpawner(),
		children: make(map[string]*child),
	}
}

// Start starts a child and returns when it is ready. It fails if the program ends by itself before
// that, if Spec.ReadyTimeout elapses, or if ctx ends; only in the last case is the child still
// running, until it is stopped. After a successful start the child is kept running.
func (s *Supervisor) Start(ctx context.Context, spec Spec) error {
	spec = spec.withDefaults()
	s.mu.Lock()
	if s.killed {
		s.mu.Unlock()
		return errKilled
	}
	if _, ok := s.children[spec.Name]; ok {
		s.mu.Unlock()
		return fmt.Errorf("start %s: there is one already", spec.Name)
	}
	c, err := newChild(s, spec)
	if err != nil {
		s.mu.Unlock()
		return fmt.Errorf("start %s: %w", spec.Name, err)
	}
	s.children[spec.Name] = c
	s.mu.Unlock()

	go c.supervise(context.WithoutCancel(ctx))
	select {
	case <-c.firstReady:
		return nil
	case <-c.done:
		if c.err == nil {
			return fmt.Errorf("start %s: %w", spec.Name, errStopped)
		}
		return fmt.Errorf("start %s: %w", spec.Name, c.err)
	case <-ctx.Done():
		return fmt.Errorf("start %s: %w", spec.Name, context.Cause(ctx))
	}
}

var (
	errStopped = errors.New("it was stopped")
	errKilled  = errors.New("the supervisor was asked to kill everything")
)

// Stop asks a child to end, kills it after the timeout, and returns when it has ended. It ignores
// an unknown name.
func (s *Supervisor) Stop(name string) {
	s.mu.Lock()
	c := s.children[name]
	s.mu.Unlock()
	if c == nil {
		return
	}
	c.stop()
	<-c.done
}

// Kill ends all children at once, without asking them; a Stop that is waiting returns. Nothing can
// be started afterwards.
func (s *Supervisor) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killed = true
	for _, c := range s.children {
		c.kill()
	}
}

// PID returns the process id of a child, 0 if it is not running.
func (s *Supervisor) PID(name string) int {
	s.mu.Lock()
	c := s.children[name]
	s.mu.Unlock()
	if c == nil {
		return 0
	}
	return int(c.pid.Load())
}

// LogPath returns the path of a child's log.
func (s *Supervisor) LogPath(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.children[name]; c != nil {
		return c.log.path
	}
	return ""
}

// Close kills all running children and releases all resources. No Start may be in progress.
func (s *Supervisor) Close() error {
	s.Kill()
	var errs []error
	for _, c := range s.children {
		<-c.done
		errs = append(errs, c.log.close())
	}
	s.spawner.close()
	return errors.Join(errs...)
}

// echo writes whole lines of children to one writer.
type echo struct {
	mu    sync.Mutex
	w     io.Writer
	color bool
}

func (e *echo) line(name string, level slog.Level, line []byte) {
	paint, end := "", ""
	if e.color {
		paint, end = "\x1b[33m", "\x1b[0m" // yellow
		if level >= slog.LevelError {
			paint = "\x1b[31m" // red
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	// If the terminal is closed, the error cannot be reported.
	_, _ = fmt.Fprintf(e.w, "%s%-11s │%s %s %s\n", paint, name, end, level, plain(line))
}

// removeRecord deletes the record of an ended process.
func (s *Supervisor) removeRecord(name string) { _ = os.Remove(recordPath(s.runDir, name)) }
