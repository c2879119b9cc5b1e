package postgres_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestProfileKeepsItsVersions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, err := b.ProfileCreate(b.ctx, profile.Profile{
		ID: session.NewID(session.ProfilePrefix), Name: "reviewer", Spec: profile.Spec{Instructions: "one"},
	})
	require.NoError(t, err)
	require.EqualValues(t, 1, first.Version)
	_, err = b.ProfileCreate(b.ctx, profile.Profile{ID: session.NewID(session.ProfilePrefix), Name: "reviewer"})
	requireCode(t, failure.NameTaken, err)

	// Of many clients that have read version 1, one creates version 2.
	var all sync.WaitGroup
	verdicts := make(chan error, 8) // one for each
	for range 8 {
		all.Go(func() {
			next := first
			next.Spec.Instructions = "two"
			_, err := b.ProfileUpdate(b.ctx, next, 1)
			verdicts <- err
		})
	}
	all.Wait()
	close(verdicts)
	won := 0
	for err := range verdicts {
		if err == nil {
			won++
			continue
		}
		requireCode(t, failure.Conflict, err)
	}
	require.Equal(t, 1, won)
	got, err := b.ProfileGet(b.ctx, "reviewer", 0)
	require.NoError(t, err)
	require.EqualValues(t, 2, got.Version)
	require.Equal(t, "two", got.Spec.Instructions)

	require.NoError(t, b.ProfileDelete(b.ctx, first.ID))
	_, err = b.ProfileGet(b.ctx, first.ID, 0)
	requireCode(t, failure.NoProfile, err)
	_, err = b.ProfileUpdate(b.ctx, first, 0)
	requireCode(t, failure.NoProfile, err)
	requireCode(t, failure.NoProfile, b.ProfileDelete(b.ctx, first.ID))
	got, err = b.ProfileGet(b.ctx, first.ID, 1)
	require.NoError(t, err)
	require.Equal(t, first.Spec, got.Spec, "its versions stay with those who have them")
	_, err = b.ProfileCreate(b.ctx, profile.Profile{ID: session.NewID(session.ProfilePrefix), Name: "reviewer"})
	require.NoError(t, err, "the name is free again")
	items, next, err := b.ProfileList(b.ctx, 10, "")
	require.NoError(t, err)
	require.Len(t, items, 1)
	require.Empty(t, next)
}

func TestTurnHasProfileOfItsSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, err := b.ProfileCreate(b.ctx, profile.Profile{
		ID: session.NewID(session.ProfilePrefix), Name: "x", Spec: profile.Spec{Model: "opus"},
	})
	require.NoError(t, err)
	ref := p.Ref()
	_, err = b.SessionPatch(b.ctx, b.id, session.Patch{Profile: &ref})
	require.NoError(t, err)
	require.NoError(t, b.ProfileDelete(b.ctx, p.ID))
	b.running(t)
	start, err := b.RunAttach(b.ctx, b.begin(t, b.submit(t, "1")), "token", run.Dispatch{No: 1, Attempt: 2}, nil)
	require.NoError(t, err)
	require.Equal(t, ref, start.ProfileRef)
	require.Equal(t, &p.Spec, start.Profile)
}

func TestVersionsOfProfileAreListed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, err := b.ProfileCreate(b.ctx, profile.Profile{ID: session.NewID(session.ProfilePrefix), Name: "p"})
	require.NoError(t, err)
	for range 2 {
		_, err = b.ProfileUpdate(b.ctx, p, 0)
		require.NoError(t, err)
	}
	var seen []int64
	cursor, pages := "", 0
	for more := true; more; more = cursor != "" {
		var items []profile.Version
		items, cursor, err = b.ProfileVersions(b.ctx, "p", 2, cursor)
		require.NoError(t, err)
		for _, v := range items {
			require.Equal(t, p.ID, v.ProfileID)
			require.False(t, v.CreatedAt.IsZero())
			seen = append(seen, v.Version)
		}
		pages++
	}
	require.Equal(t, []int64{3, 2, 1}, seen)
	require.Equal(t, 2, pages)
	_, err = b.ProfileGet(b.ctx, p.ID, 4)
	requireCode(t, failure.NoVersion, err)
	_, _, err = b.ProfileVersions(b.ctx, session.NewID(session.ProfilePrefix), 2, "")
	requireCode(t, failure.NoProfile, err)
	require.NoError(t, b.ProfileDelete(b.ctx, p.ID))
	_, _, err = b.ProfileVersions(b.ctx, "p", 2, "")
	requireCode(t, failure.NoProfile, err)
	_, _, err = b.ProfileVersions(b.ctx, p.ID, 2, "")
	require.NoError(t, err, "sessions may have them")
}
