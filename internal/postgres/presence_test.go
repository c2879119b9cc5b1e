package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/presence"
)

func TestPresencesAreRenewedEndAndExpire(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	ctx := t.Context()
	viewer := func(client, sessionID, user string) presence.Viewer {
		return presence.Viewer{Client: client, SessionID: sessionID, User: presence.User{ID: user, Name: user}}
	}
	viewers := []presence.Viewer{viewer("c", "a", "bob"), viewer("b", "a", "bob"), viewer("a", "a", "ada"), viewer("d", "a", ""), viewer("e", "b", "eve")}
	require.NoError(t, db.PresenceRenew(ctx, viewers, time.Hour))
	require.NoError(t, db.PresenceRenew(ctx, viewers[:1], time.Hour))
	want := map[string]presence.Presence{
		"a": {Clients: 4, Users: []presence.User{{ID: "ada", Name: "ada"}, {ID: "bob", Name: "bob"}}},
		"b": {Clients: 1, Users: []presence.User{{ID: "eve", Name: "eve"}}},
	}
	got, err := db.PresenceRead(ctx, []string{"a", "b", "c"})
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.NoError(t, db.PresenceEnd(ctx, []string{"a", "none"}))
	require.NoError(t, db.PresenceRenew(ctx, viewers[4:], -2*time.Minute))
	got, err = db.PresenceRead(ctx, []string{"a", "b"})
	require.NoError(t, err)
	require.Equal(t, map[string]presence.Presence{"a": {Clients: 3, Users: []presence.User{{ID: "bob", Name: "bob"}}}}, got)
	require.NoError(t, db.PresenceSweep(ctx))
	require.NoError(t, db.PresenceRenew(ctx, viewers[:3], -30*time.Second))
	require.NoError(t, db.PresenceSweep(ctx), "a recently expired presence may be renewed by its api")

	var many []presence.Viewer
	for i := range 150 {
		many = append(many, viewer(fmt.Sprint(i), "many", fmt.Sprintf("u%03d", i)))
	}
	require.NoError(t, db.PresenceRenew(ctx, many, time.Hour))
	got, err = db.PresenceRead(ctx, []string{"many"})
	require.NoError(t, err)
	require.Equal(t, 150, got["many"].Clients)
	require.Len(t, got["many"].Users, presence.MaxUsers)
}
