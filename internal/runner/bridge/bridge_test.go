package bridge_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/leaktest"
	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// peer is a Peer whose agent is played by the test.
type peer struct {
	*bridge.Peer
	fromPeer *json.Decoder
	toPeer   *io.PipeWriter
	lines    chan string // each as passed to handle
}

func setup(t *testing.T) peer {
	t.Helper()
	in, toAgent := io.Pipe()
	stdout, toPeer := io.Pipe()
	p := peer{Peer: bridge.NewPeer(toAgent), fromPeer: json.NewDecoder(in), toPeer: toPeer, lines: make(chan string, 16)} // more than a test sends
	done := make(chan error)
	go func() {
		done <- p.Read(stdout, func(line []byte, m bridge.Message) { p.lines <- m.Method + " " + string(line) })
	}()
	t.Cleanup(func() {
		require.NoError(t, toPeer.Close())
		require.NoError(t, <-done)
		require.NoError(t, in.Close())
	})
	return p
}

func (p peer) say(t *testing.T, line string) {
	t.Helper()
	_, err := io.WriteString(p.toPeer, line+"\n")
	require.NoError(t, err)
}

func (p peer) hear(t *testing.T) map[string]any {
	t.Helper()
	var m map[string]any
	require.NoError(t, p.fromPeer.Decode(&m))
	return m
}

func TestCallGetsItsResponse(t *testing.T) {
	t.Parallel()
	p := setup(t)
	type result struct {
		raw json.RawMessage
		err error
	}
	first, second := make(chan result), make(chan result)
	call := func(method string, to chan result) {
		raw, err := p.Call(t.Context(), method, map[string]int{"x": 1})
		to <- result{raw, err}
	}
	go call("first", first)
	require.Equal(t, map[string]any{"jsonrpc": "2.0", "id": "first#1", "method": "first", "params": map[string]any{"x": 1.0}}, p.hear(t))
	go call("second", second)
	require.Equal(t, "second#2", p.hear(t)["id"])
	p.say(t, `{"id":"nobody#7","result":{}}`)
	p.say(t, `{"id":7,"result":{}}`)
	p.say(t, `{"id":"second#2","result":{"ok":true}}`)
	r := <-second
	require.NoError(t, r.err)
	require.JSONEq(t, `{"ok":true}`, string(r.raw))
	p.say(t, `{"id":"first#1","error":{"code":-32600,"message":"not now"}}`)
	r = <-first
	var e *bridge.RPCError
	require.ErrorAs(t, r.err, &e)
	require.Equal(t, -32600, e.Code)
	require.EqualError(t, r.err, "first: not now (code -32600)")
}

func TestEveryLineIsHandedOverUnchanged(t *testing.T) {
	t.Parallel()
	p := setup(t)
	for _, line := range []string{`no json`, `{"method":"tick",  "params":{}}`, `{"id":1,"method":"ask"}`} {
		p.say(t, line)
	}
	require.Equal(t, " no json", <-p.lines)
	require.Equal(t, `tick {"method":"tick",  "params":{}}`, <-p.lines)
	require.Equal(t, `ask {"id":1,"method":"ask"}`, <-p.lines)
	go func() { _ = p.Reply(json.RawMessage(`1`), map[string]bool{"fine": true}) }()
	require.Equal(t, map[string]any{"jsonrpc": "2.0", "id": 1.0, "result": map[string]any{"fine": true}}, p.hear(t))
	go func() { _ = p.Refuse(json.RawMessage(`"a"`), bridge.CodeMethodNotFound, "no") }()
	require.Equal(t, map[string]any{"code": -32601.0, "message": "no"}, p.hear(t)["error"])
	p.Bare = true
	go func() { _ = p.Notify("ready", nil) }()
	require.Equal(t, map[string]any{"method": "ready"}, p.hear(t))
}

func TestCallsFailAfterExitOrTimeout(t *testing.T) {
	t.Parallel()
	p := setup(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error)
	go func() {
		_, err := p.Call(ctx, "slow", nil)
		failed <- err
	}()
	p.hear(t)
	cancel(io.ErrUnexpectedEOF)
	require.ErrorIs(t, <-failed, io.ErrUnexpectedEOF)
	go func() {
		_, err := p.Call(t.Context(), "lost", nil)
		failed <- err
	}()
	p.hear(t)
	require.NoError(t, p.toPeer.Close())
	require.ErrorIs(t, <-failed, bridge.ErrGone)
	_, err := p.Call(t.Context(), "late", nil)
	require.ErrorIs(t, err, bridge.ErrGone)
}

func TestCommandsRoundTrip(t *testing.T) {
	t.Parallel()
	want := stdio.Command{
		Type: stdio.Prompt, RunID: "run_1", PromptID: "prm_1", Content: "a\nb", Author: "ada",
		At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Data: json.RawMessage(`{"a":1}`),
	}
	line, err := want.Encode()
	require.NoError(t, err)
	var stderr bytes.Buffer
	in := string(line) + "\nno json\n{}\n" + `{"type":"interrupt","runId":"run_1"}`
	var got []stdio.Command
	for c := range bridge.Commands(t.Context().Done(), strings.NewReader(in), &stderr) {
		got = append(got, c)
	}
	require.Equal(t, []stdio.Command{want, {Type: stdio.Interrupt, RunID: "run_1"}}, got)
	require.Equal(t, 2, strings.Count(stderr.String(), "a line is not a command"))
}

func TestOutputPrintsWholeLines(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	o := bridge.NewOutput(&b)
	line := []byte(`{"a": 1}tail`)
	o.Raw(line[:8])
	o.Raw([]byte("{\n\"b\": 2\n}\n"))
	o.Raw([]byte("no\njson"))
	note := stdio.Note{Type: stdio.NoteDied, RunID: "run_1", Message: "exit status 1", Data: json.RawMessage(`{"x":{}}`)}
	o.Note(note)
	require.NoError(t, o.Err())
	require.Equal(t, `{"a": 1}tail`, string(line), "the line is not written into")
	lines := strings.Split(b.String(), "\n")
	require.Equal(t, []string{`{"a": 1}`, `{"b":2}`, `no json`}, lines[:3])
	got, ok := stdio.ParseNote([]byte(lines[3]))
	require.True(t, ok)
	require.Equal(t, note, got)
	for _, other := range append(lines[:3], ``, `{"overwinter":`, `{"overwinter":{}}`, `{"overwinter":7}`, `{"overwinter":{"type":7}}`) {
		_, ok := stdio.ParseNote([]byte(other))
		require.False(t, ok, other)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestOutputReportsMissingReader(t *testing.T) {
	t.Parallel()
	o := bridge.NewOutput(broken{})
	o.Raw([]byte("x"))
	o.Note(stdio.Note{Type: stdio.NoteRun})
	require.ErrorIs(t, o.Err(), io.ErrClosedPipe)
}

func start(t *testing.T, script string) *bridge.Child {
	t.Helper()
	c, err := bridge.Start(bridge.Spec{Argv: []string{"/bin/sh", "-c", script}, Dir: t.TempDir(), Stderr: io.Discard})
	require.NoError(t, err)
	t.Cleanup(func() {
		c.Stop(time.Millisecond)
		require.NoError(t, c.Stdout.Close())
	})
	return c
}

func TestChildEndsWithItsStdin(t *testing.T) {
	t.Parallel()
	c := start(t, "read line; echo got $line; cat >/dev/null; echo over; exit 3")
	_, err := io.WriteString(c.Stdin, "it\n")
	require.NoError(t, err)
	c.Stop(time.Minute)
	require.Equal(t, "exit status 3", c.Ended())
	out, err := io.ReadAll(c.Stdout)
	require.NoError(t, err)
	require.Equal(t, "got it\nover\n", string(out))
}

func TestChildThatIgnoresSignalIsKilled(t *testing.T) {
	t.Parallel()
	c := start(t, "trap '' TERM; echo ready; while :; do sleep 0.01; done")
	_, err := io.ReadFull(c.Stdout, make([]byte, 6))
	require.NoError(t, err)
	c.Stop(10 * time.Millisecond)
	require.Equal(t, "signal: killed", c.Ended())
}

func TestMissingChildIsError(t *testing.T) {
	t.Parallel()
	_, err := bridge.Start(bridge.Spec{Argv: []string{filepath.Join(t.TempDir(), "none")}})
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = bridge.Start(bridge.Spec{})
	require.Error(t, err)
	c := start(t, "exit 0")
	require.Equal(t, "exit status 0", c.Ended())
	c.Signal(syscall.SIGTERM)
}
