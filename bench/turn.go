package main

import (
	"context"
	"fmt"
	"time"

	enums "go.temporal.io/api/enums/v1"
)

// measureTurns measures the life of one session on an otherwise idle system.
func measureTurns(ctx context.Context, b *bench, s *section) error {
	sys, err := b.system(ctx)
	if err != nil {
		return err
	}
	s.note("One session with the agent `demo`. In each round every floor is sampled once, then one prompt is sent; in each round of the second " +
		"series one bare sandbox is created, restored from the session's own snapshot, snapshotted and terminated, then the session hibernates and wakes. " +
		"A floor of several operations is summed round by round.")
	s.note("*Agent has it* is the agent's own time of its first word: it has read the prompt and written it to its transcript. *Signal → activity* is a " +
		"signal to a workflow of the bench until the activity that it starts runs. *Exec* is a call of the SDK until the first byte of `sh` arrives.")
	p, err := newProbe(ctx, sys.client, 5) // caches and connections are warm after a few prompts
	if err != nil {
		return err
	}
	defer p.close(context.WithoutCancel(ctx))
	l := &life{}
	if err := p.promptRounds(ctx, sys.bare, b.options.Rounds, b.options.Limit, l); err != nil {
		return fmt.Errorf("prompts: %w", err)
	}
	l.addPrompts(s)
	if err := addTurnCosts(ctx, sys, p, s, max(5, b.options.Rounds/2)); err != nil {
		return fmt.Errorf("cost of a turn: %w", err)
	}
	if err := p.sleepRounds(ctx, sys.bare, b.options.Sleeps, b.options.Limit, l); err != nil {
		return fmt.Errorf("hibernate and wake: %w", err)
	}
	l.addSleeps(s, "")
	l.addFloors(s)
	return nil
}

// life has the measurements of one session's life, with their floors.
type life struct {
	floors  floors
	prompts prompts
	sleeps  sleeps
}

// addPrompts adds the times of prompts to a running session.
func (l *life) addPrompts(s *section) {
	f := &l.floors
	s.compare("prompt → 202", distribution(&l.prompts.accepted), "commit + signal", distribution(sum(&f.commit, &f.signal)), within(2))
	s.compare("prompt → agent has it", distribution(&l.prompts.firstWord), "signal → activity + commit + exec",
		distribution(sum(&f.activity, &f.commit, &f.exec)), within(1.3))
	s.add("prompt of one word → `turn_end` at the reader", distribution(&l.prompts.ended), noGoal)
}

// addSleeps adds the times of hibernation and wake.
func (l *life) addSleeps(s *section, of string) {
	f := &l.floors
	s.compare("hibernate → `hibernated` at the reader"+of, distribution(&l.sleeps.hibernated),
		"snapshot + terminate", distribution(sum(&f.snapshot, &f.end)), above(60*time.Millisecond))
	s.compare("prompt to a sleeper → agent has it"+of, distribution(&l.sleeps.firstWord), "restore", distribution(&f.restore), above(100*time.Millisecond))
}

// addFloors adds the floors one by one.
func (l *life) addFloors(s *section) {
	f := &l.floors
	for _, floor := range []struct {
		name    string
		samples *samples
	}{
		{"commit of one row", &f.commit},
		{"signal", &f.signal},
		{"signal → activity started", &f.activity},
		{"exec through the SDK → its first byte", &f.exec},
		{"line of that process → bench", &f.line},
		{"create", &f.create},
		{"restore (create from a session's snapshot)", &f.restore},
		{"snapshot", &f.snapshot},
		{"terminate", &f.end},
	} {
		s.add("floor: "+floor.name, distribution(floor.samples), noGoal)
	}
}

// addTurnCosts adds the cost of consecutive turns, in CPU time and in counts.
func addTurnCosts(ctx context.Context, sys *system, p *probe, s *section, turns int) error {
	historyBefore, err := sys.history(ctx, p.session)
	if err != nil {
		return err
	}
	transactionsBefore, err := sys.bare.transactions(ctx)
	if err != nil {
		return err
	}
	before := readCPU(sys.pid())
	for range turns {
		if err := p.turn(ctx, &prompts{}); err != nil {
			return err
		}
	}
	used := readCPU(sys.pid()).since(before)
	transactionsAfter, err := sys.bare.transactions(ctx)
	if err != nil {
		return err
	}
	historyAfter, err := sys.history(ctx, p.session)
	if err != nil {
		return err
	}
	n := float64(turns)
	used.addTo(s, "turn of one word", turns, noGoal)
	s.add("transactions in Postgres per turn", number(float64(transactionsAfter-transactionsBefore)/n, count), noGoal)
	if historyAfter.run == historyBefore.run { // otherwise the workflow has continued as a new run, with a new history
		s.add("history events per turn", number(float64(historyAfter.events-historyBefore.events)/n, count), noGoal)
		s.add("workflow tasks per turn", number(float64(historyAfter.tasks-historyBefore.tasks)/n, count), noGoal)
	}
	return nil
}

// history has the length of a workflow's history.
type history struct {
	run           string
	events, tasks int
}

// history reads the history of a session's workflow, whose ID is the session's.
func (s *system) history(ctx context.Context, sessionID string) (history, error) {
	described, err := s.bare.temporal.DescribeWorkflowExecution(ctx, sessionID, "")
	if err != nil {
		return history{}, err
	}
	h := history{run: described.GetWorkflowExecutionInfo().GetExecution().GetRunId()}
	for all := s.bare.temporal.GetWorkflowHistory(ctx, sessionID, h.run, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); all.HasNext(); {
		e, err := all.Next()
		if err != nil {
			return history{}, err
		}
		h.events++
		if e.GetEventType() == enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			h.tasks++
		}
	}
	return h, nil
}
