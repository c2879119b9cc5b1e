package activities_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/postgres"
)

// compactions records its calls.
type compactions struct {
	*postgres.DB
	ages []time.Duration
}

func (c *compactions) EventsCompact(ctx context.Context, age time.Duration, after int64, limit, budget int) (next, dropped int64, err error) {
	c.ages = append(c.ages, age)
	return c.DB.EventsCompact(ctx, age, after, limit, budget)
}

func TestNothingIsCompactedByDefault(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	store := &compactions{DB: b.db}
	require.NoError(t, activities.NewPurger(b.control, store, noWorkflows{}, activities.Retention{}).Pass(b.ctx))
	require.Empty(t, store.ages)
	require.NoError(t, activities.NewPurger(b.control, store, noWorkflows{}, activities.Retention{Deltas: time.Hour}).Pass(b.ctx))
	require.Equal(t, []time.Duration{time.Hour}, store.ages)
}
