package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/durable"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runner/beat"
	"github.com/overwinter-dev/overwinter/internal/runner/follow"
	"github.com/overwinter-dev/overwinter/internal/runner/journal"
	"github.com/overwinter-dev/overwinter/internal/runner/process"
	"github.com/overwinter-dev/overwinter/internal/runner/regular"
)

const (
	// syncInterval is the time between syncs of new records. A sync costs the runner as much as
	// several lines of the agent, and the disk is lost with its sandbox.
	syncInterval = 5 * time.Second
	maxState     = 16 << 20        // bytes of one of the runner's files
	stopGrace    = 2 * time.Second // for each step of stopping an agent gracefully
)

// Config is the configuration of a server.
type Config struct {
	Dir       string // state directory; created if missing
	Home      string // the agent's HOME
	Workspace string // watched directory
	TokenHash string // SHA-256 of the token, in hexadecimal
	Logger    *slog.Logger
	// MaxPause bounds how long the agent waits for a worker that handles none of its output; 20 s
	// by default.
	MaxPause time.Duration
}

// Server owns the agent of a sandbox, its journals and its one link.
type Server struct {
	cfg      Config
	logger   *slog.Logger
	reaper   *process.Reaper
	versions *follow.Versions
	files    *follow.Workspace
	lock     *os.File
	tasks    sync.WaitGroup // everything that ends with Serve
	calls    calls

	// life is held while the agent is started, stopped or sealed, or a prompt is added to its turn.
	life    sync.Mutex
	steered map[string]struct{} // ids of the prompts added to the open run

	ledgerSync sync.Mutex // acquired before mu

	mu       sync.Mutex
	link     *link
	spare    *bufio.Writer // of a link that has ended; nil if there is none
	conns    map[net.Conn]struct{}
	attempts map[string]int64            // newest attempt per run
	journals map[string]*journal.Journal // open journals by run
	open     *journal.Journal            // receives frames; nil before the first start
	retired  []*journal.Journal          // no longer in use, to be synced and closed
	kept     journal.Runs                // runs, of which old ones are forgotten
	named    bool                        // a journal was created and named in openFile, which may not be synced
	unsynced chan struct{}               // has room for one signal that syncOnce has something to sync
	agent    *process.Agent              // the newest process; may have exited
	patterns []string                    // of transcripts
	// beginning is set while the open run's prompt is being delivered.
	beginning bool
	early     *earlyAbort // newest interrupt of a run that has not begun, or nil
	sealed    bool
	seals     int // number of seals so far
	stopping  bool
	paced     chan struct{} // closed when an agent that waits for its worker may continue; nil if none waits
}

// Serve serves on the socket in the state directory until ctx ends, and then stops the agent.
// Nothing else in its process may use child processes.
func Serve(ctx context.Context, cfg Config) error {
	s, err := open(cfg)
	if err != nil {
		return err
	}
	listener, err := s.listen()
	if err != nil {
		return errors.Join(err, s.lock.Close())
	}
	callers, err := s.listenForCalls()
	if err != nil {
		return errors.Join(err, listener.Close(), s.lock.Close())
	}
	s.reaper = process.NewReaper()
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.tasks.Go(func() { s.syncJournals(background, syncInterval) })
	s.tasks.Go(s.files.Load)
	s.tasks.Go(func() {
		<-ctx.Done()
		_ = errors.Join(listener.Close(), callers.Close())
	})
	s.tasks.Go(func() { s.acceptCalls(ctx, callers) })
	s.logger.InfoContext(ctx, "runner serves", slog.String("dir", cfg.Dir), slog.Int("pid", os.Getpid()))
	for {
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
				s.logger.ErrorContext(ctx, "accept", slog.Any("error", err))
				select { // for example too many open files
				case <-ctx.Done():
				case <-time.After(10 * time.Millisecond):
				}
				continue
			}
			break
		}
		s.tasks.Go(func() { s.serveConn(conn.(*net.UnixConn)) }) //nolint:contextcheck // a command that has begun ends, also when the runner stops
	}
	s.shutdown()
	cancel()
	s.tasks.Wait()
	s.files.Close()
	s.reaper.Close()
	return errors.Join(s.closeJournals(), s.lock.Close())
}

// open opens the state directory and recovers the state that an earlier runner left.
func open(cfg Config) (*Server, error) {
	s := &Server{
		cfg: cfg, logger: cfg.Logger, versions: follow.NewVersions(),
		files: follow.NewWorkspace(cfg.Workspace, runner.IndexDir(cfg.Dir)),
		conns: map[net.Conn]struct{}{}, attempts: map[string]int64{}, journals: map[string]*journal.Journal{},
		unsynced: make(chan struct{}, 1),
	}
	if err := os.MkdirAll(s.runs(), 0o700); err != nil {
		return nil, fmt.Errorf("make state directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(cfg.Dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock state directory: %w", err)
	}
	s.lock = lock
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock state directory: another runner has %s: %w", cfg.Dir, err), lock.Close())
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		s.logger.Warn("not a subreaper: processes that the agent detaches can outlive it", slog.Any("error", err))
	}
	if err := s.recover(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return s, nil
}

func (s *Server) runs() string     { return filepath.Join(s.cfg.Dir, "runs") }
func (s *Server) openFile() string { return filepath.Join(s.cfg.Dir, "open") }
func (s *Server) patternsFile() string {
	return filepath.Join(s.cfg.Dir, "transcripts.json")
}

// recover marks the run that was open when the last runner exited as cut.
func (s *Server) recover() error {
	data, err := regular.Read(s.patternsFile(), maxState)
	if err == nil {
		err = json.Unmarshal(data, &s.patterns)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.logger.Warn("transcript patterns are lost", slog.Any("error", err))
	}
	name, err := regular.Read(s.openFile(), maxState)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("read open run: %w", err)
	}
	run := strings.TrimSpace(string(name))
	j, err := s.kept.Open(s.runs(), run)
	if errors.Is(err, fs.ErrNotExist) { // the runner exited before it created the journal
		return os.Remove(s.openFile())
	} else if err != nil {
		return err
	}
	s.journals[run] = j
	status := j.Status()
	if status.Mark.Final() {
		return os.Remove(s.openFile())
	}
	// An agent that had exited before was not interrupted, so its frames are complete.
	final := journal.Cut
	if status.Exited && status.Mark == journal.Delivered {
		final = journal.Closed
	}
	if err := j.Mark(final); err != nil {
		return err
	}
	s.logger.Info("an open run was found", slog.String("run_id", run), slog.Int64("frames", status.Frames), slog.Bool("cut", final == journal.Cut))
	return os.Remove(s.openFile())
}

func (s *Server) listen() (*net.UnixListener, error) { return listenAt(runner.SocketPath(s.cfg.Dir)) }

// listenAt opens a socket that only users with the runner's id can connect to.
func listenAt(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("replace socket: %w", err)
	}
	old := unix.Umask(0o177) // so that the socket is never open to others
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return listener, nil
}

// syncJournals syncs new records within an interval. It does not wake if no records are new.
func (s *Server) syncJournals(ctx context.Context, interval time.Duration) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.unsynced:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(beat.Next(interval)):
		}
		if err := s.syncOnce(); err != nil {
			s.fail(err)
		}
	}
}

// wrote notifies syncJournals of new records.
func (s *Server) wrote() {
	select {
	case s.unsynced <- struct{}{}:
	default: // the next sync has not begun
	}
}

// syncOnce syncs the records that runs have written since the last call.
func (s *Server) syncOnce() error {
	s.mu.Lock()
	j, retired, named := s.open, s.retired, s.named
	s.retired, s.named = nil, false
	s.mu.Unlock()
	errs := []error{s.syncLedger()}
	for _, j := range retired {
		errs = append(errs, j.Sync(), j.Close())
	}
	if j != nil {
		errs = append(errs, j.Sync())
	}
	if named {
		if err := durable.Sync(s.openFile()); !errors.Is(err, fs.ErrNotExist) { // a seal has removed it
			errs = append(errs, err)
		}
		errs = append(errs, durable.Sync(s.runs()), durable.Sync(s.cfg.Dir))
	}
	return errors.Join(errs...)
}

// syncLedger syncs the ledger of the runs. When it returns without an error, all runs that were added
// before are on disk.
func (s *Server) syncLedger() error {
	s.ledgerSync.Lock()
	defer s.ledgerSync.Unlock()
	s.mu.Lock()
	ledger := s.kept.Unsynced()
	s.mu.Unlock()
	if ledger == nil {
		return nil
	}
	err := ledger.Sync()
	if err != nil {
		s.mu.Lock()
		s.kept.NotSynced()
		s.mu.Unlock()
	}
	return err
}

// journalOf opens the journal of a run. It returns nil if the run has no journal.
func (s *Server) journalOf(run string) (*journal.Journal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.journals[run]; j != nil {
		return j, nil
	}
	j, err := s.kept.Open(s.runs(), run)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if !j.Status().Mark.Final() { // another run was begun and the runner died before it recorded the end of this one
		if err := j.Mark(journal.Closed); err != nil {
			return nil, errors.Join(err, j.Close())
		}
	}
	s.journals[run] = j
	return j, nil
}

// frame records output of the agent in the journal of the open run.
func (s *Server) frame(stream runner.Stream, data []byte, truncated bool) {
	for {
		s.mu.Lock()
		j := s.open
		s.mu.Unlock()
		_, err := j.Append(stream, time.Now(), data, truncated)
		if errors.Is(err, journal.ErrFinal) {
			s.mu.Lock()
			next := s.open != j
			s.mu.Unlock()
			if next { // the next run began in between
				continue
			}
		}
		if err != nil {
			s.fail(err)
		}
		s.wrote()
		return
	}
}

// fail stops the agent and ends the link if the journal cannot be written, because frames that
// cannot be read again must not be acted on.
func (s *Server) fail(err error) {
	s.logger.Error("journal failed", slog.Any("error", err))
	s.mu.Lock()
	a, l := s.agent, s.link
	s.mu.Unlock()
	if a != nil {
		s.tasks.Go(func() { a.Kill(runner.StoppedJournal) }) // Kill may wait for the caller
	}
	if l != nil {
		l.end(&runner.Error{Code: runner.CodeJournal, Message: err.Error()})
	}
}

// shutdown stops the agent and closes all connections.
func (s *Server) shutdown() {
	s.mu.Lock()
	s.stopping = true
	l := s.link
	s.mu.Unlock()
	if l != nil {
		l.end(&runner.Error{Code: runner.CodeStopping, Message: "the runner is going down"})
	}
	s.life.Lock()
	defer s.life.Unlock()
	s.mu.Lock()
	a := s.agent
	s.mu.Unlock()
	if a != nil {
		a.Stop(runner.StoppedRunner, stopGrace)
	}
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
}

func (s *Server) closeJournals() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, j := range s.retired {
		errs = append(errs, j.Sync(), j.Close())
	}
	s.retired = nil
	for _, j := range s.journals {
		errs = append(errs, j.Sync(), j.Close())
	}
	if ledger := s.kept.Unsynced(); ledger != nil {
		errs = append(errs, ledger.Sync())
	}
	errs = append(errs, s.kept.Close())
	return errors.Join(errs...)
}
