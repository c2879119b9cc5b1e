package main

import (
	"context"
	"errors"
	"time"
)

// measureStarts starts systems with an empty data directory, and again with the used one.
func measureStarts(ctx context.Context, b *bench, s *section) error {
	cold, warm := &samples{}, &samples{}
	for range b.options.Starts {
		if err := startTwice(ctx, b.options.Bin, cold, warm); err != nil {
			return err
		}
	}
	s.note("From the start of the process until `/readyz` answers 200.")
	s.add("empty data directory", distribution(cold), noGoal)
	s.add("used data directory", distribution(warm), noGoal)
	return nil
}

func startTwice(ctx context.Context, bin string, kinds ...*samples) (err error) {
	st, err := newStack(ctx, bin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.stop(), st.remove()) }()
	for _, into := range kinds {
		var took time.Duration
		if took, err = st.start(ctx); err != nil {
			return err
		}
		into.add(took)
		if err = st.stop(); err != nil {
			return err
		}
	}
	return nil
}
