package opencodebridge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
)

// mute is a server that may leave requests unanswered. It accepts a prompt whether or not it
// responds.
type mute struct {
	mu sync.Mutex
	// silent are the paths of unanswered requests, prefixed with the method.
	silent   map[string]bool
	takes    bool // accepts prompts
	busy     bool
	messages []map[string]any
}

func (s *mute) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	call := r.Method + " " + r.URL.Path
	s.mu.Lock()
	if call == "POST /session/ses_1/prompt_async" && s.takes {
		var body promptBody
		if json.NewDecoder(r.Body).Decode(&body) == nil {
			s.busy = true
			s.messages = append(s.messages, map[string]any{
				"info":  map[string]any{"id": body.MessageID, "sessionID": "ses_1", "role": "user", "time": map[string]any{"created": 1}},
				"parts": []any{map[string]any{"id": body.Parts[0].ID, "type": "text", "text": body.Parts[0].Text}},
			})
		}
	}
	var answer any = map[string]any{"id": "ses_1"}
	switch call {
	case "GET /session/ses_1/message":
		answer = s.messages
	case "GET /session/status":
		status := map[string]any{}
		if s.busy {
			status["ses_1"] = map[string]any{"type": "busy"}
		}
		answer = status
	}
	silent := s.silent[call]
	s.mu.Unlock()
	if silent {
		panic(http.ErrAbortHandler) // aborts the connection
	}
	data, err := json.Marshal(answer)
	if err != nil {
		panic(err) // maps of strings can always be encoded
	}
	_, _ = w.Write(data)
}

// driven returns a driver for such a server with a turn that has begun.
func driven(t *testing.T, s *mute) (*driver, *bytes.Buffer) {
	t.Helper()
	if s.messages == nil {
		s.messages = []map[string]any{}
	}
	http1 := httptest.NewServer(s)
	t.Cleanup(http1.Close)
	child, err := bridge.Start(bridge.Spec{Argv: []string{"tail", "-f", "/dev/null"}})
	require.NoError(t, err)
	t.Cleanup(func() { child.Stop(0) })
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	var out, stderr bytes.Buffer
	d := &driver{
		out: bridge.NewOutput(&out), stderr: &stderr, incomplete: map[string]bool{}, root: "ses_1",
		store:  store{dir: t.TempDir()},
		server: &server{child: child, base: http1.URL, client: client, timeout: requestTimeout},
		// Negative, so that checks are always due.
		lookEvery: -time.Second, silence: -time.Second,
	}
	d.command(context.Background(), stdio.Command{Type: stdio.Prompt, RunID: "run_1", Content: "hello"})
	return d, &out
}

func TestUnacknowledgedPromptMayBeRunning(t *testing.T) {
	t.Parallel()
	d, out := driven(t, &mute{takes: true, silent: map[string]bool{"POST /session/ses_1/prompt_async": true}})
	require.NotNil(t, d.turn, "its failure is not known")
	require.NotContains(t, out.String(), `"failed"`)
	require.Error(t, d.turn.unsure)
	d.look(context.Background())
	require.NoError(t, d.turn.unsure, "it is running")
	d.event(context.Background(), []byte(`{"type":"session.status","properties":{"sessionID":"ses_1","status":{"type":"busy"}}}`))
	d.event(context.Background(), []byte(`{"type":"message.updated","properties":{"sessionID":"ses_1","info":{"id":"msg_zz","sessionID":"ses_1","role":"assistant","time":{"created":2,"completed":3}}}}`))
	d.event(context.Background(), []byte(`{"type":"session.idle","properties":{"sessionID":"ses_1"}}`))
	require.Nil(t, d.turn)
	require.Contains(t, out.String(), `"type":"end","runId":"run_1","data":{"outcome":""}`)
	require.NotContains(t, out.String(), `"failed"`)
}

func TestUnstartedPromptEndsAgent(t *testing.T) {
	t.Parallel()
	d, out := driven(t, &mute{silent: map[string]bool{"POST /session/ses_1/prompt_async": true}})
	for range startLooks - 1 {
		d.look(context.Background())
		require.NotNil(t, d.turn)
		require.Empty(t, d.why)
	}
	d.look(context.Background())
	require.Contains(t, d.why, "OpenCode does not answer: ")
	<-d.server.child.Done() // wait until it is stopped
	require.Equal(t, bridge.ExitDied, d.died())
	require.Contains(t, out.String(), `"type":"died","message":"OpenCode does not answer: `)
	require.NotContains(t, out.String(), `"end"`)
}

func TestHangingServerIsKilled(t *testing.T) {
	t.Parallel()
	s := &mute{takes: true}
	d, _ := driven(t, s)
	require.NoError(t, d.turn.unsure)
	d.look(context.Background())
	require.Empty(t, d.why, "it works")
	s.mu.Lock()
	s.silent = map[string]bool{"GET /session/status": true}
	s.mu.Unlock()
	d.look(context.Background())
	require.Contains(t, d.why, "OpenCode does not answer: ")
	<-d.server.child.Done()
}

func TestRefusedPromptFails(t *testing.T) {
	t.Parallel()
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			http.Error(w, "no such model", http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, "[]")
	}))
	t.Cleanup(refusing.Close)
	var out, stderr bytes.Buffer
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	d := &driver{
		out: bridge.NewOutput(&out), stderr: &stderr, incomplete: map[string]bool{}, root: "ses_1",
		store: store{dir: t.TempDir()}, server: &server{base: refusing.URL, client: client, timeout: requestTimeout},
	}
	d.command(context.Background(), stdio.Command{Type: stdio.Prompt, RunID: "run_1", Content: "hello"})
	require.Nil(t, d.turn)
	require.Contains(t, out.String(), "no such model")
	require.Contains(t, out.String(), `"type":"end"`)
}
