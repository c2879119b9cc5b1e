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

// keepRuns is how many runs keep their frames. A run has ended before the next starts, so all but
// one are kept only to investigate problems.
const keepRuns = 16

// delivery returns the state of a run's prompt according to its journal; j may be nil.
func delivery(j *journal.Journal) runner.Delivery {
	if j == nil {
		return runner.NotStarted
	}
	status := j.Status()
	switch {
	case status.Mark == journal.Cut || status.Mark == 0: // the runner died right after it created the journal
		return runner.Cut
	case status.Delivered:
		return runner.Delivered
	case status.Mark.Final():
		return runner.Cut
	}
	return runner.Delivering
}

// begin delivers the prompt of a run that has no journal yet. It calls report, which must not
// block, at least once and whenever the delivery changes. begin returns before the agent has read
// the prompt. seals is the number of seals when the start arrived: a start that had to wait for a
// seal is refused, because otherwise the sandbox would be snapshotted with a running agent.
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
		a.AwaitExit()
		switch {
		case a.Running() && a.Key() != process.LaunchKey(start):
			a.Stop(runner.StoppedLaunch, stopGrace)
		case !a.Running():
			<-a.Done() // its exit frame belongs to the previous run
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
		s.wrote()
	}
	s.interruptEarly(run, a)
	return errors.Join(err, s.closeRun(before))
}

// interruptEarly ends the beginning of a run and executes an interrupt that arrived before it. a is
// nil if no agent could be started.
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

// deliver writes the prompt of the open run to the agent a, or to a new one if a has exited or is
// nil. It fails if a new one cannot be started.
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
			// The delivery stays delivering, because part of it may have been read. A process that
			// closed its stdin without exiting would leave the run without an end.
			time.AfterFunc(stopGrace, func() { a.Kill(runner.StoppedStdin) })
			return
		}
		if err := j.Mark(journal.Delivered); errors.Is(err, journal.ErrFinal) {
			return
		} else if err != nil {
			s.fail(err)
			return
		}
		s.wrote()
		report(j)
	})
	if errors.Is(err, process.ErrStuck) {
		// An agent that has not read the earlier prompts will not read this one either.
		a.Kill(runner.StoppedStdin)
	}
	return a, nil // if it has exited, its exit frame follows
}

// openRun creates the journal of the next run, marked as delivering, and returns the journal of the
// previous run, or nil.
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
	if err := s.nameOpen(run); err != nil {
		return nil, nil, fmt.Errorf("name open run: %w", err)
	}
	// A caller that finds the journal of a run that is not open would treat the run as abandoned.
	s.mu.Lock()
	defer s.mu.Unlock()
	if j, err = s.kept.Create(s.runs(), run, journal.Delivering); err != nil {
		return nil, nil, err
	}
	s.steered = map[string]struct{}{}
	s.named = true // synced soon; a prompt does not wait for it
	s.wrote()
	before = s.open
	s.open, s.journals[run], s.sealed, s.beginning = j, j, false, true
	if len(patterns) > 0 {
		s.patterns = patterns
	}
	s.repace()
	return j, before, nil
}

// openSize is the size of the file that names the open run: the longest name of a run and a newline.
const openSize = 129

// nameOpen writes the name of the open run over the previous name. The name is padded to a fixed
// size, so that nothing of a longer name remains. The change may be lost in a crash of the machine.
func (s *Server) nameOpen(run string) error {
	name := fmt.Appendf(nil, "%-*s\n", openSize-1, run)
	return journal.Overwrite(s.openFile(), name)
}

// closeRun closes the previous run, whose agent has no more output. The prompt of the open run does
// not wait for it.
func (s *Server) closeRun(before *journal.Journal) error {
	if before != nil {
		if err := before.Mark(journal.Closed); err != nil && !errors.Is(err, journal.ErrFinal) {
			return err
		}
	}
	s.forget()
	return nil
}

// forget closes unused journals and discards the frames of old runs.
func (s *Server) forget() {
	s.mu.Lock()
	defer s.mu.Unlock() // held, so that no journal is opened while it is being discarded
	for run, j := range s.journals {
		if j == s.open || s.link != nil && s.link.run == run {
			continue
		}
		delete(s.journals, run)
		s.kept.End(j)
		s.retired = append(s.retired, j) // no prompt, and no line of the agent, waits for the disk
	}
	s.wrote()
	if s.link != nil && s.link.run != s.open.Run() {
		return // a link may read an old run; the next start discards it
	}
	if err := s.kept.Forget(s.runs(), keepRuns); err != nil {
		s.logger.Warn("frames of old runs are kept", slog.Any("error", err))
	}
}

// earlyAbort is an interrupt that arrived before its run had its prompt.
type earlyAbort struct {
	run       string
	interrupt runner.Interrupt
}

// interrupt aborts the turn of a run and reports whether there is one. An interrupt that arrives
// before its run starts is kept until then.
func (s *Server) interrupt(run string, i runner.Interrupt) (bool, error) {
	a, early := s.target(run, i)
	if early {
		return true, nil
	}
	if !a.Running() {
		return false, nil
	}
	s.unpace(run) // the agent's final output is not held back
	err := a.Interrupt(i)
	if errors.Is(err, process.ErrEnded) {
		return false, nil
	}
	return err == nil, err
}

// target returns the agent that has the run's prompt, nil if the run has ended.
func (s *Server) target(run string, i runner.Interrupt) (a *process.Agent, early bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	isOpen := s.open != nil && s.open.Run() == run
	if isOpen && !s.beginning {
		return s.agent, false
	}
	if known, err := s.kept.Exists(s.runs(), run); !isOpen && known && err == nil {
		return nil, false
	}
	s.early = &earlyAbort{run, i}
	return nil, true
}

// settle ends the calls of a run, and cancels the kill that an interrupt has scheduled, if the run
// is still open.
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

// input writes more bytes of a run to the agent's stdin.
func (s *Server) input(run string, data []byte) error {
	s.mu.Lock()
	a, j := s.agent, s.open
	s.mu.Unlock()
	if j == nil || j.Run() != run || a == nil {
		return process.ErrEnded
	}
	return a.Write(data, nil)
}

// steer writes a prompt for the agent's current run to its stdin, unless it was written before.
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
