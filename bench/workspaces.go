package main

import (
	"context"
	"fmt"
	"time"
)

// measureWorkspaces measures hibernation and wake of sessions with few and with many files.
func measureWorkspaces(ctx context.Context, b *bench, s *section) error {
	sys, err := b.system(ctx)
	if err != nil {
		return err
	}
	s.note("As the series of hibernations and wakes of one session above, with that many files of a few bytes in the workspace. " +
		"One small file changes between two snapshots of the bare sandbox, none in the session.")
	for _, files := range b.options.Files {
		if err := measureWorkspace(ctx, b, sys, s, files); err != nil {
			return fmt.Errorf("%d files: %w", files, err)
		}
	}
	return nil
}

func measureWorkspace(ctx context.Context, b *bench, sys *system, s *section, files int) error {
	p, err := newProbe(ctx, sys.client, 1)
	if err != nil {
		return err
	}
	defer p.close(context.WithoutCancel(ctx))
	// A hundred directories, each with a hundredth of the files.
	script := fmt.Sprintf("$ for d in $(seq 100); do mkdir d$d && (cd d$d && seq %d | split -l 1 -a 4 -d - f); done\nready", files/100)
	if err := p.send(ctx, script, &prompts{}); err != nil {
		return fmt.Errorf("write the files: %w", err)
	}
	l := &life{}
	if err := p.sleepRounds(ctx, sys.bare, max(1, b.options.Sleeps/2), b.options.Limit, l); err != nil {
		return err
	}
	f, of := &l.floors, fmt.Sprintf(", %d files", files)
	asleep, awake := above(60*time.Millisecond), above(100*time.Millisecond)
	if files > 10_000 { // reported without a goal
		asleep, awake = noGoal, noGoal
	}
	s.compare("hibernate → `hibernated` at the reader"+of, distribution(&l.sleeps.hibernated), "snapshot + terminate", distribution(sum(&f.snapshot, &f.end)), asleep)
	s.compare("prompt to a sleeper → agent has it"+of, distribution(&l.sleeps.firstWord), "restore", distribution(&f.restore), awake)
	return nil
}
