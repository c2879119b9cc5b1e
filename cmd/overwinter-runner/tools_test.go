package main

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agenttool"
	"github.com/overwinter-dev/overwinter/internal/runner"
)

// tools starts the server of overwinter's tools, as an agent does.
func (b *sandbox) tools() *mcp.ClientSession {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*deadline)
	b.t.Cleanup(cancel)
	cmd := b.command(ctx, []string{b.paths.Binary, "tools", "--dir", b.paths.State})
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = session.Close() })
	return session
}

// setTitle calls a tool and sends its answer to the channel.
func setTitle(t *testing.T, session *mcp.ClientSession, title string) <-chan *mcp.CallToolResult {
	t.Helper()
	answer := make(chan *mcp.CallToolResult, 1)
	go func() {
		defer close(answer)
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		if r, err := session.CallTool(ctx, &mcp.CallToolParams{Name: agenttool.SetTitle, Arguments: map[string]any{"title": title}}); err == nil {
			answer <- r
		}
	}()
	return answer
}

func textOf(t *testing.T, r *mcp.CallToolResult) string {
	t.Helper()
	require.NotNil(t, r)
	require.Len(t, r.Content, 1)
	return r.Content[0].(*mcp.TextContent).Text
}

// called waits for the frame of a call.
func (w *worker) called() *runner.Frame {
	w.t.Helper()
	return w.until(func(m runner.Message) bool {
		f, ok := m.(*runner.Frame)
		return ok && f.Stream == runner.Call
	}).(*runner.Frame)
}

func answered(t *testing.T, text string) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(agenttool.Answer{Text: text})
	require.NoError(t, err)
	return b
}

// TestCallIsFrameAndIsAnswered also covers an answer from a worker that attaches after the worker
// that read the frame has disconnected.
func TestCallIsFrameAndIsAnswered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	session := b.tools()
	list, err := session.ListTools(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, list.Tools, len(agenttool.All()))

	r := <-setTitle(t, session, "too early")
	require.True(t, r.IsError)
	require.Equal(t, "No turn is in progress.", textOf(t, r))

	w := b.attach(runner.Hello{Run: "run_1", Calls: true})
	require.NoError(t, w.Start(runner.Start{Launch: b.shell(echo), Input: []byte("one\n")}))
	w.line("got one")
	answer := setTitle(t, session, "first")
	f := w.called()
	require.JSONEq(t, `{"tool":"set_title","input":{"title":"first"}}`, string(f.Data))
	require.NoError(t, w.Answer(f.No+1, answered(t, "of another")), "no such call waits")
	require.NoError(t, w.Answer(f.No, answered(t, "done")))
	r = <-answer
	require.False(t, r.IsError)
	require.Equal(t, "done", textOf(t, r))

	answer = setTitle(t, session, "second")
	f = w.called()
	require.NoError(t, w.Close(), "the worker is lost after it has committed the frame")
	w = b.attach(runner.Hello{Run: "run_1", From: f.No + 1, Calls: true})
	require.Equal(t, []int64{f.No}, w.Welcome().Calls)
	require.NoError(t, w.Answer(f.No, answered(t, "done by another")))
	require.Equal(t, "done by another", textOf(t, <-answer))

	answer = setTitle(t, session, "third")
	w.called()
	require.NoError(t, w.Settle())
	require.Equal(t, "The turn ended before the call was answered.", textOf(t, <-answer))
	require.Equal(t, "No turn is in progress.", textOf(t, <-setTitle(t, session, "too late")))
	require.Empty(t, b.attach(runner.Hello{Run: "run_1", Calls: true}).Welcome().Calls)
}

// TestOlderWorkerGetsNoCalls covers workers of an earlier release, which do not understand
// frames of calls.
func TestOlderWorkerGetsNoCalls(t *testing.T) {
	t.Parallel()
	b := setup(t)
	session := b.tools()
	w := b.attach(runner.Hello{Run: "run_1", Calls: true})
	require.NoError(t, w.Start(runner.Start{Launch: b.shell(echo), Input: []byte("one\n")}))
	w.line("got one")
	answer := setTitle(t, session, "first")
	f := w.called()
	old := b.attach(runner.Hello{Run: "run_1", From: f.No})
	require.Equal(t, runner.Stderr, old.line("The worker of this turn knows no such calls.").Stream)
	require.True(t, (<-answer).IsError)
	require.True(t, (<-setTitle(t, session, "second")).IsError)
}

func TestCallsAreValidated(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.attach(runner.Hello{Run: "run_1", Calls: true})
	require.NoError(t, w.Start(runner.Start{Launch: b.shell(echo), Input: []byte("one\n")}))
	w.line("got one")
	exchange := func(data string) string {
		conn, err := net.Dial("unix", runner.CallSocketPath(b.paths.State))
		require.NoError(t, err)
		defer conn.Close() // the answer has already been read
		go func() { _, _ = conn.Write([]byte(data)) }()
		var answer runner.CallRefused
		require.NoError(t, json.NewDecoder(conn).Decode(&answer))
		require.True(t, answer.Failed)
		return answer.Text
	}
	require.Equal(t, "The call is not JSON.", exchange("{\n"))
	require.Equal(t, "The call is too large.", exchange(`"`+strings.Repeat("x", runner.MaxCall)+"\n"))
	for range runner.MaxCalls {
		conn, err := net.Dial("unix", runner.CallSocketPath(b.paths.State))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = conn.Write([]byte("{}\n"))
		require.NoError(t, err)
		w.called()
	}
	require.Contains(t, exchange("{}\n"), "Too many calls")
}
