package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/feed"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// TestPostgresSessionsOfEarlierReleaseAreServed checks that the API reads all data of a database
// that was migrated from an earlier release, and accepts a command and a prompt for its sessions.
func TestPostgresSessionsOfEarlierReleaseAreServed(t *testing.T) {
	t.Parallel()
	db := postgrestest.Open(t, postgrestest.FileURL(t, "../internal/postgres/testdata/schema6.sql"))
	require.NoError(t, db.Migrate(t.Context()))
	f := eventlog.NewFollower(db, eventlog.FollowerOptions{Format: feed.Format()})
	f.Start()
	t.Cleanup(f.Stop)
	b := setup(t, func(c *api.Config) { c.Store, c.Events = db, feed.Of(f) })

	all := string(b.do("GET", "/api/sessions", "").body)
	for i, state := range session.States {
		id := fmt.Sprintf("ses_%032x", i+1)
		require.Contains(t, all, id)
		path := "/api/sessions/" + id
		for _, read := range []string{"", "/prompts", "/prompts/p1", "/blocks", "/transcript", "/questions", "/files", "/diff"} {
			got := b.do("GET", path+read, "")
			if state == session.Initializing || read == "/diff" || read == "/transcript" {
				require.Contains(t, []int{http.StatusOK, http.StatusNotFound}, got.status, "%s%s: %s", path, read, got.body)
				continue
			}
			require.Equal(t, http.StatusOK, got.status, "%s%s: %s", path, read, got.body)
		}
		types, _ := readUntil(t, b.stream(path+"/events"), "caught_up")
		require.Contains(t, strings.Join(types, " "), "prompt queue", state)
		if state.Final() {
			b.do("POST", path+"/prompts", `{"content":"late"}`).problem(http.StatusConflict, "session_terminated")
			continue
		}
		if state == session.Error {
			b.do("POST", path+"/prompts", `{"content":"more"}`).problem(http.StatusConflict, "session_in_error")
		} else {
			require.Equal(t, http.StatusAccepted, b.do("POST", path+"/prompts", `{"content":"more"}`).status)
		}
		stopped := b.do("POST", path+"/stop", "")
		require.Equal(t, http.StatusAccepted, stopped.status, "%s: %s", path, stopped.body)
	}
}
