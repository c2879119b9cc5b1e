package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runner/journal"
)

// keepRuns is how many runs keep their frames. A run is over before the next
// starts, so more than one serves those who look for the cause of something.
const keepRuns = 16

// delivery is what a journal says of its run's prompt; j may be nil.
func delivery(j *journal.Journal) runner.Delivery {
	if j == nil {
		return runner.NotStarted
	}
	status := j.Status()
	switch {
	case status.Mark == journal.Cut || status.Mark == 0: // it died right after making the journal
		return runner.Cut
	case status.Delivered:
		return runner.Delivered
	case status.Mark.Final():
		return runner.Cut
	}
	return runner.Delivering
}

// begin delivers the prompt of a run that has no journal yet. It calls the function `told` when the
// delivery changes, once at least; it must not block. begin returns before the agent has read. seals
// is how many seals there had been when the start came: a start that had to wait for a seal is
// refused, or the sandbox would be snapshotted with an agent at work.
func (s *Supervisor) begin(run string, start *runner.Start, seals int, told func(*journal.Journal)) error {
	s.life.Lock()
	defer s.life.Unlock()
	j, err := s.journalOf(run)
	if err != nil {
		return err
	}
	if j != nil {
		told(j)
		return nil
	}
	s.mu.Lock()
	a, stopping := s.agent, s.stopping || s.seals != seals
	s.mu.Unlock()
	if stopping {
		return &runner.Error{Code: runner.CodeStopping, Message: "the runner is going down"}
	}
	if a != nil {
		a.callOff()
		switch {
		case a.running() && a.key != launchKey(start):
			a.stop(runner.StoppedLaunch, stopGrace)
		case !a.running():
			<-a.done // its exit frame belongs to the run before
		}
	}
	defer func() {
		s.mu.Lock()
		s.beginning = false
		s.mu.Unlock()
	}()
	j, before, err := s.openRun(run, start.Launch.Transcripts)
	if err != nil {
		return err
	}
	told(j)
	if a, err = s.deliver(j, a, start, told); err != nil {
		s.log.Warn("agent cannot be started", slog.String("run_id", run), slog.Any("error", err))
		_, err = j.Append(runner.Exit, time.Now(), encodeReport(runner.ExitReport{Code: 127, Stderr: err.Error()}), false)
	}
	s.interruptEarly(run, a)
	return errors.Join(err, s.closeRun(before))
}

// interruptEarly ends the beginning of a run and obeys the interrupt that came
// before it. a is nil where no agent could be started.
func (s *Supervisor) interruptEarly(run string, a *agent) {
	s.mu.Lock()
	s.beginning = false
	early := s.early
	if early != nil && early.run == run {
		s.early = nil
	}
	s.mu.Unlock()
	if early == nil || early.run != run || a == nil {
		return
	}
	if err := a.interrupt(early.interrupt); err != nil {
		s.log.Warn("early abort", slog.String("run_id", run), slog.Any("error", err))
	}
}

// deliver gives the prompt of the open run to the agent a, or to a new one where
// a has ended or is nil. It fails when a new one cannot be started.
func (s *Supervisor) deliver(j *journal.Journal, a *agent, start *runner.Start, told func(*journal.Journal)) (*agent, error) {
	if a == nil || a.ended() {
		fresh, err := startAgent(s.reaper, s.cfg.Home, start, s.log, s.frame)
		if err != nil {
			return nil, err
		}
		a = fresh
		s.mu.Lock()
		s.agent = a
		s.mu.Unlock()
		s.log.Info("agent started", slog.String("run_id", j.Run()), slog.Int("agent_pid", a.child.pid))
	}
	err := a.write(start.Input, func(err error) {
		if err != nil {
			s.log.Warn("prompt was not delivered", slog.String("run_id", j.Run()), slog.Any("error", err))
			// It stays delivering: some of it may have been read. A process that closed
			// its stdin without ending would leave the run without an end.
			time.AfterFunc(stopGrace, func() { a.kill(runner.StoppedStdin) })
			return
		}
		if err := j.Mark(journal.Delivered); errors.Is(err, journal.ErrFinal) {
			return
		} else if err != nil {
			s.fail(err)
			return
		}
		told(j)
	})
	if errors.Is(err, errAgentStuck) {
		// What has not read the prompts before will not read this one either.
		a.kill(runner.StoppedStdin)
	}
	return a, nil // where it has ended its exit frame is on its way
}

// openRun makes the journal of the next run, marked as delivering and on disk, and
// returns that of the run before, nil where there is none.
func (s *Supervisor) openRun(run string, patterns []string) (j, before *journal.Journal, err error) {
	s.mu.Lock()
	known := slices.Equal(patterns, s.patterns)
	s.mu.Unlock()
	if len(patterns) > 0 && !known {
		data, err := json.Marshal(patterns)
		if err == nil {
			err = writeDurably(s.patternsFile(), data)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("keep transcript patterns: %w", err)
		}
	}
	if err := replaceFile(s.openFile(), []byte(run+"\n"), false); err != nil {
		return nil, nil, fmt.Errorf("name open run: %w", err)
	}
	// A caller that finds the journal of a run that is not open takes it for an abandoned one.
	s.mu.Lock()
	defer s.mu.Unlock()
	if j, err = journal.Create(s.runs(), run, journal.Delivering); err != nil {
		return nil, nil, err
	}
	// After the journal, with which most file systems have written it: a prompt waits for this.
	if err := errors.Join(syncPath(s.openFile()), syncPath(s.cfg.Dir)); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("name open run: %w", err), j.Close())
	}
	before = s.open
	s.open, s.journals[run], s.sealed, s.beginning = j, j, false, true
	if len(patterns) > 0 {
		s.patterns = patterns
	}
	return j, before, nil
}

// closeRun closes the run before the open one, whose agent has no more to say. The
// prompt of the open one does not wait for it.
func (s *Supervisor) closeRun(before *journal.Journal) error {
	if before != nil {
		if err := before.Mark(journal.Closed); err != nil && !errors.Is(err, journal.ErrFinal) {
			return err
		}
	}
	s.forget()
	return nil
}

// forget closes the journals that are not in use and discards the frames of old runs.
func (s *Supervisor) forget() {
	s.mu.Lock()
	defer s.mu.Unlock() // so that no journal is opened while it is being shortened
	for run, j := range s.journals {
		if j == s.open || s.link != nil && s.link.run == run {
			continue
		}
		delete(s.journals, run)
		if err := errors.Join(j.Sync(), j.Close()); err != nil {
			s.log.Warn("close journal", slog.String("run_id", run), slog.Any("error", err))
		}
	}
	if s.link != nil && s.link.run != s.open.Run() {
		return // it may read an old run; the next start forgets
	}
	if err := journal.Forget(s.runs(), keepRuns); err != nil {
		s.log.Warn("frames of old runs are kept", slog.Any("error", err))
	}
}

// earlyAbort is an interrupt that came before its run had its prompt.
type earlyAbort struct {
	run       string
	interrupt runner.Interrupt
}

// interrupt breaks the turn of a run off and reports whether there is one. An
// interrupt that comes before the start of its run is kept for it.
func (s *Supervisor) interrupt(run string, i runner.Interrupt) (bool, error) {
	a, early := s.target(run, i)
	if early {
		return true, nil
	}
	if !a.running() {
		return false, nil
	}
	err := a.interrupt(i)
	if errors.Is(err, errAgentEnded) {
		return false, nil
	}
	return err == nil, err
}

// target returns the agent that has the run's prompt, nil when the run is over.
func (s *Supervisor) target(run string, i runner.Interrupt) (a *agent, early bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	isOpen := s.open != nil && s.open.Run() == run
	if isOpen && !s.beginning {
		return s.agent, false
	}
	if !isOpen && journal.Exists(s.runs(), run) {
		return nil, false
	}
	s.early = &earlyAbort{run, i}
	return nil, true
}

// settle calls off the kill of an interrupt, if the run is still the open one.
func (s *Supervisor) settle(run string) {
	s.mu.Lock()
	a, j := s.agent, s.open
	s.mu.Unlock()
	if j != nil && j.Run() == run && a != nil {
		a.callOff()
	}
}

// input gives the agent more bytes of a run.
func (s *Supervisor) input(run string, data []byte) error {
	s.mu.Lock()
	a, j := s.agent, s.open
	s.mu.Unlock()
	if j == nil || j.Run() != run || a == nil {
		return errAgentEnded
	}
	return a.write(data, nil)
}

// sealed is the supervisor's response to the seal command.
type sealed struct {
	Files     []string `json:"files"`
	Run       string   `json:"run"`
	LastFrame int64    `json:"lastFrame"`
	DiffKey   string   `json:"diffKey,omitempty"` // of the diff that is to be taken
}

// seal stops the agent, hands the rest of the transcripts and what has happened
// in the workspace to send, and puts everything on disk.
func (s *Supervisor) seal(r *runner.SealRequest, send func(runner.Message) error) (sealed, error) {
	s.life.Lock()
	defer s.life.Unlock()
	s.mu.Lock()
	a, patterns := s.agent, r.Transcripts
	if len(patterns) == 0 {
		patterns = s.patterns
	}
	s.mu.Unlock()
	grace := r.Grace
	if grace <= 0 {
		grace = stopGrace
	}
	if a != nil {
		a.stop(runner.StoppedSeal, grace)
	}
	segment := func(seg *runner.Segment) error { return send(seg) }
	if err := newFollower(r.Known, s.versions).poll(patterns, true, segment); err != nil {
		return sealed{}, fmt.Errorf("hand over transcripts: %w", err)
	}
	answer := sealed{Files: expand(patterns), LastFrame: -1}
	if r.Files != nil {
		var err error
		if answer.DiffKey, err = s.files.seal(*r.Files, r.KnownFiles, send); err != nil {
			return sealed{}, fmt.Errorf("hand over the workspace: %w", err)
		}
	}
	if err := syncFiles(answer.Files); err != nil {
		return sealed{}, err
	}
	s.mu.Lock()
	j := s.open
	s.mu.Unlock()
	if j != nil {
		if err := j.Mark(journal.Sealed); err != nil && !errors.Is(err, journal.ErrFinal) {
			return sealed{}, err
		}
		answer.Run, answer.LastFrame = j.Run(), j.Status().Frames-1
	}
	if err := os.Remove(s.openFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return sealed{}, fmt.Errorf("forget open run: %w", err)
	}
	if err := syncPath(s.cfg.Dir); err != nil {
		return sealed{}, err
	}
	s.mu.Lock()
	s.sealed, s.seals = true, s.seals+1
	s.mu.Unlock()
	return answer, nil
}
