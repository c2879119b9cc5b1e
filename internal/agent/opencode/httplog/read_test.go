package httplog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/opencode/httplog"
)

func TestResponsesAreKnownByTheirPaths(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]struct {
		messages string
		sessions []string
	}{
		`{"path":"/session","response":[{"id":"a"},{"id":"b"}]}`:              {sessions: []string{`{"id":"a"}`, `{"id":"b"}`}},
		`{"path":"/session?limit=1","response":[{"id":"a"}]}`:                 {sessions: []string{`{"id":"a"}`}},
		`{"path":"/session/a","response":{"id":"a"}}`:                         {sessions: []string{`{"id":"a"}`}},
		`{"path":"/session/a/children","response":[{"id":"b"}]}`:              {sessions: []string{`{"id":"b"}`}},
		`{"path":"/session/a/message?limit=9","response":[{"info":{}}]}`:      {messages: `[{"info":{}}]`},
		`{"path":"/session/a/message/m/part","response":{"id":"no session"}}`: {},
		`{"path":"/config","response":{"id":"no session"}}`:                   {},
		`{"path":"/session/a"}`:                                               {},
		`no json`:                                                             {},
	} {
		var messages string
		var sessions []string
		for _, r := range httplog.Read([]byte(line)) {
			messages += string(r.Messages)
			for _, s := range r.Sessions {
				sessions = append(sessions, string(s))
			}
		}
		require.Equal(t, want.messages, messages, line)
		require.Equal(t, want.sessions, sessions, line)
	}
}

func TestIsLooksAtFirstLine(t *testing.T) {
	t.Parallel()
	require.True(t, httplog.Is([]byte(`{"path":"/session","response":[]}`+"\n{")))
	require.False(t, httplog.Is([]byte(`{"info":{},"messages":[]}`)))
	require.False(t, httplog.Is([]byte("[]\n"+`{"path":"/session"}`)))
}
