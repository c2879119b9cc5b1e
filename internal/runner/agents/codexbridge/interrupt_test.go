package codexbridge

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent/codex/codexformat"
	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// answering returns a bridge whose agent answers each call with the given function.
func answering(t *testing.T, answer func(p *program, method string, turn codexformat.Turn) *bridge.RPCError) (*program, *bytes.Buffer) {
	t.Helper()
	var printed bytes.Buffer
	fromBridge, toAgent := io.Pipe()
	fromAgent, toBridge := io.Pipe()
	p := &program{out: bridge.NewOutput(&printed), stderr: io.Discard, peer: bridge.NewPeer(toAgent), delivered: map[string]*delivery{}}
	agent, read := make(chan error, 1), make(chan error, 1)
	go func() {
		agent <- bridge.ReadLines(fromBridge, func(line []byte) {
			var m bridge.Message
			var params struct{ ThreadID, TurnID string }
			if json.Unmarshal(line, &m) != nil || json.Unmarshal(m.Params, &params) != nil {
				return
			}
			m = bridge.Message{ID: m.ID, Error: answer(p, m.Method, codexformat.Turn{Thread: params.ThreadID, ID: params.TurnID})}
			if m.Error == nil {
				m.Result = json.RawMessage(`{}`)
			}
			reply, err := json.Marshal(m)
			if err == nil {
				_, _ = toBridge.Write(append(reply, '\n'))
			}
		})
	}()
	go func() { read <- p.peer.Read(fromAgent, func([]byte, bridge.Message) {}) }()
	t.Cleanup(func() {
		require.NoError(t, toAgent.Close())
		require.NoError(t, <-agent)
		require.NoError(t, toBridge.Close())
		require.NoError(t, <-read)
	})
	return p, &printed
}

func TestAbortIsRecordedIfMainTurnEndsMeanwhile(t *testing.T) {
	t.Parallel()
	main, sub := codexformat.Turn{Thread: "main", ID: "1"}, codexformat.Turn{Thread: "sub", ID: "2"}
	var interrupted []codexformat.Turn
	p, printed := answering(t, func(p *program, method string, turn codexformat.Turn) *bridge.RPCError {
		if method != "turn/interrupt" {
			return nil
		}
		interrupted = append(interrupted, turn)
		if turn != sub {
			return &bridge.RPCError{Message: "no active turn"}
		}
		p.mu.Lock() // the main turn completes before the subagent's is interrupted
		defer p.mu.Unlock()
		p.delivered["run_1"].verdict = &codexformat.KnownData{Outcome: session.OutcomeCompleted}
		p.turns = slices.DeleteFunc(p.turns, func(t codexformat.Turn) bool { return t == main })
		return nil
	})
	p.run, p.thread = "run_1", main.Thread
	p.delivered["run_1"] = &delivery{turn: main.ID, live: true, received: true}
	p.turns = []codexformat.Turn{main, sub}
	p.interrupt(t.Context(), "run_1")
	require.Equal(t, []codexformat.Turn{sub, main}, interrupted)
	require.Contains(t, printed.String(), string(codexformat.NoteAborted))
}
