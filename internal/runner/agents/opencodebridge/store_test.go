package opencodebridge

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/opencode/opencodeformat"
)

// serving returns a server with a handler, for the store.
func serving(t *testing.T, h http.HandlerFunc) *server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return &server{base: s.URL, client: s.Client(), timeout: time.Minute}
}

func TestNewestReadableMainSessionIsResumed(t *testing.T) {
	t.Parallel()
	s := store{dir: t.TempDir()}
	_, ok := s.main()
	require.False(t, ok, "nothing has been saved")
	for name, data := range map[string]string{
		"ses_old":   `{"info":{"id":"ses_old","time":{"created":1}},"messages":[{},{}]}`,
		"ses_new":   `{"info":{"id":"ses_new","time":{"created":2}},"messages":[{}]}`,
		"ses_child": `{"info":{"id":"ses_child","parentID":"ses_new","time":{"created":3}}}`,
		"ses_cut":   `{"info":{"id":"ses_cut","time":{"created":4}},"mess`,
		"ses_other": `{"info":{"id":"ses_moved","time":{"created":5}}}`,
		"failures":  `{"failures":[{"messageID":"msg_1","message":"no answer"}]}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, name+opencodeformat.TranscriptSuffix), []byte(data), 0o600))
	}
	best, ok := s.main()
	require.True(t, ok)
	require.Equal(t, "ses_new", best.info.ID)
	require.Equal(t, 1, best.messages)
	require.Equal(t, filepath.Join(s.dir, "ses_new.json"), best.file)
}

func TestFailuresAreAddedToThoseOfEarlierBridges(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "deep")
	for _, id := range []string{"msg_1", "msg_2"} {
		s := store{dir: dir} // each uses a new bridge
		require.NoError(t, s.fail(opencodeformat.Failure{MessageID: id, Message: "no answer"}))
	}
	data, err := os.ReadFile(filepath.Join(dir, failuresFile))
	require.NoError(t, err)
	require.JSONEq(t, `{"failures":[{"messageID":"msg_1","message":"no answer"},{"messageID":"msg_2","message":"no answer"}]}`, string(data))
}

func TestFailedSessionSaveIsRetried(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	broken.Store(true)
	from := serving(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/session/ses_deleted"):
			http.NotFound(w, r)
		case broken.Load():
			http.Error(w, "not now", http.StatusInternalServerError)
		case strings.HasSuffix(r.URL.Path, "/message"):
			_, _ = w.Write([]byte(`[{"info":{"id":"msg_1"}}]`))
		default:
			_, _ = w.Write([]byte(`{"id":"ses_1"}`))
		}
	})
	s := store{dir: t.TempDir()}
	for _, id := range []string{"ses_1", "ses_deleted", "", "../ses_1"} {
		s.touch(id)
	}
	require.ErrorContains(t, s.save(t.Context(), from), "save session ses_1")
	require.False(t, s.due(time.Now()), "not at once")
	require.True(t, s.due(time.Now().Add(maxSaveInterval)))
	broken.Store(false)
	require.NoError(t, s.save(t.Context(), from))
	require.False(t, s.due(time.Now().Add(maxSaveInterval)), "nothing has changed since")
	entries, err := os.ReadDir(s.dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "neither a deleted session, nor a partial write")
	data, err := os.ReadFile(filepath.Join(s.dir, "ses_1.json"))
	require.NoError(t, err)
	require.JSONEq(t, `{"overwinter":true,"info":{"id":"ses_1"},"messages":[{"info":{"id":"msg_1"}}]}`, string(data))
}
