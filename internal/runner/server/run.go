package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/durable"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runner/journal"
	"github.com/overwinter-dev/overwinter/internal/runner/process"
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

// begin delivers the prompt of a run that has no journal yet. It calls the function report when the
// delivery changes, once at least; it must not block. begin returns before the agent has read. seals
// is how many seals there had been when the start came: a start that had to wait for a seal is
// refused, or the sandbox would be snapshotted with an agent at work.
func (s *Server) begin(run string, start *runner.Start, seals int, report func(*journal.Journal)) error {
	s.life.Lock()
	defer s.life.Unlock()
	j, err := s.journalOf(run)
	if err != nil {
		return err
	}
	if j != nil {
		report(j)
		return nil
	}
	s.mu.Lock()
	a, stopping := s.agent, s.stopping || s.seals != seals
	s.mu.Unlock()
	if stopping {
		return &runner.Error{Code: runner.CodeStopping, Message: "the runner is going down"}
	}
	if a != nil {
		a.CallOff()
		s.reaper.Look()
		switch {
		case a.Running() && a.Key() != process.LaunchKey(start):
			a.Stop(runner.StoppedLaunch, stopGrace)
		case !a.Running():
			<-a.Done() // its exit frame belongs to the run before
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
	s.answerCalls(refusal(callTurnOver), func(c *call) bool { return c.run != run })
	report(j)
	if a, err = s.deliver(j, a, start, report); err != nil {
		s.logger.Warn("agent cannot be started", slog.String("run_id", run), slog.Any("error", err))
		_, err = j.Append(runner.Exit, time.Now(), process.FailedStart(err), false)
	}
	s.interruptEarly(run, a)
	return errors.Join(err, s.closeRun(before))
}

// interruptEarly ends the beginning of a run and obeys the interrupt that came
// before it. a is nil where no agent could be started.
func (s *Server) interruptEarly(run string, a *process.Agent) {
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
	if err := a.Interrupt(early.interrupt); err != nil {
		s.logger.Warn("early abort", slog.String("run_id", run), slog.Any("error", err))
	}
}

// deliver gives the prompt of the open run to the agent a, or to a new one where
// a has ended or is nil. It fails when a new one cannot be started.
func (s *Server) deliver(j *journal.Journal, a *process.Agent, start *runner.Start, report func(*journal.Journal)) (*process.Agent, error) {
	if a == nil || a.Ended() {
		fresh, err := process.Start(s.reaper, s.cfg.Home, start, s.logger, s.frame, s.pace)
		if err != nil {
			return nil, err
		}
		a = fresh
		s.mu.Lock()
		s.agent = a
		s.mu.Unlock()
		s.logger.Info("agent started", slog.String("run_id", j.Run()), slog.Int("agent_pid", a.PID()))
	}
	err := a.Write(start.Input, func(err error) {
		if err != nil {
			s.logger.Warn("prompt was not delivered", slog.String("run_id", j.Run()), slog.Any("error", err))
			// It stays delivering: some of it may have been read. A process that closed
			// its stdin without ending would leave the run without an end.
			time.AfterFunc(stopGrace, func() { a.Kill(runner.StoppedStdin) })
			return
		}
		if err := j.Mark(journal.Delivered); errors.Is(err, journal.ErrFinal) {
			return
		} else if err != nil {
			s.fail(err)
			return
		}
		report(j)
	})
	if errors.Is(err, process.ErrStuck) {
		// What has not read the prompts before will not read this one either.
		a.Kill(runner.StoppedStdin)
	}
	return a, nil // where it has ended its exit frame is on its way
}

// openRun makes the journal of the next run, marked as delivering, and returns that of the run before, nil where there is none.
func (s *Server) openRun(run string, patterns []string) (j, before *journal.Journal, err error) {
	s.mu.Lock()
	known := slices.Equal(patterns, s.patterns)
	s.mu.Unlock()
	if len(patterns) > 0 && !known {
		data, err := json.Marshal(patterns)
		if err == nil {
			err = durable.WriteFile(s.patternsFile(), data)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("keep transcript patterns: %w", err)
		}
	}
	if err := journal.ReplaceFile(s.openFile(), []byte(run+"\n")); err != nil {
		return nil, nil, fmt.Errorf("name open run: %w", err)
	}
	// A caller that finds the journal of a run that is not open takes it for an abandoned one.
	s.mu.Lock()
	defer s.mu.Unlock()
	if j, err = journal.Create(s.runs(), run, journal.Delivering); err != nil {
		return nil, nil, err
	}
	s.steered = map[string]struct{}{}
	s.named = true // on disk soon; a prompt does not wait for it
	before = s.open
	s.open, s.journals[run], s.sealed, s.beginning = j, j, false, true
	if len(patterns) > 0 {
		s.patterns = patterns
	}
	s.repace()
	return j, before, nil
}

// closeRun closes the run before the open one, whose agent has no more to say. The
// prompt of the open one does not wait for it.
func (s *Server) closeRun(before *journal.Journal) error {
	if before != nil {
		if err := before.Mark(journal.Closed); err != nil && !errors.Is(err, journal.ErrFinal) {
			return err
		}
	}
	s.forget()
	return nil
}

// forget closes the journals that are not in use and discards the frames of old runs.
func (s *Server) forget() {
	s.mu.Lock()
	defer s.mu.Unlock() // so that no journal is opened while it is being shortened
	for run, j := range s.journals {
		if j == s.open || s.link != nil && s.link.run == run {
			continue
		}
		delete(s.journals, run)
		s.over = append(s.over, j) // no prompt, and no line of the agent, waits for the disk
	}
	if s.link != nil && s.link.run != s.open.Run() {
		return // it may read an old run; the next start forgets
	}
	if err := journal.Forget(s.runs(), keepRuns); err != nil {
		s.logger.Warn("frames of old runs are kept", slog.Any("error", err))
	}
}

// earlyAbort is an interrupt that came before its run had its prompt.
type earlyAbort struct {
	run       string
	interrupt runner.Interrupt
}

// interrupt breaks the turn of a run off and reports whether there is one. An
// interrupt that comes before the start of its run is kept for it.
func (s *Server) interrupt(run string, i runner.Interrupt) (bool, error) {
	a, early := s.target(run, i)
	if early {
		return true, nil
	}
	if !a.Running() {
		return false, nil
	}
	s.unpace(run) // what it says at its end is not held back
	err := a.Interrupt(i)
	if errors.Is(err, process.ErrEnded) {
		return false, nil
	}
	return err == nil, err
}

// target returns the agent that has the run's prompt, nil when the run is over.
func (s *Server) target(run string, i runner.Interrupt) (a *process.Agent, early bool) {
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

// settle ends the calls of a run, and calls off the kill of an interrupt, if the run is still the open one.
func (s *Server) settle(run string) {
	s.settleCalls(run)
	s.unpace(run)
	s.mu.Lock()
	a, j := s.agent, s.open
	s.mu.Unlock()
	if j != nil && j.Run() == run && a != nil {
		a.CallOff()
	}
}

// input gives the agent more bytes of a run.
func (s *Server) input(run string, data []byte) error {
	s.mu.Lock()
	a, j := s.agent, s.open
	s.mu.Unlock()
	if j == nil || j.Run() != run || a == nil {
		return process.ErrEnded
	}
	return a.Write(data, nil)
}

// steer gives the agent a prompt for the run that it works on, unless it was given that before.
func (s *Server) steer(run string, m *runner.Steer) error {
	s.life.Lock() // not before the prompt of the run, and not twice
	defer s.life.Unlock()
	s.mu.Lock()
	a, j := s.agent, s.open
	s.mu.Unlock()
	if j == nil || j.Run() != run || a == nil {
		return process.ErrEnded
	}
	if _, given := s.steered[m.ID]; given {
		return nil
	}
	if err := a.Write(m.Data, nil); err != nil {
		return err
	}
	s.steered[m.ID] = struct{}{}
	return nil
}
