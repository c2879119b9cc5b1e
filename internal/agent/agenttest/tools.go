package agenttest

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agenttool"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/runner/tools"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// asTools is the first argument that makes a test binary act as the server of overwinter's tools.
// An argument is needed because agents do not pass all of their environment on.
const asTools = "overwinter-test-as-tools"

// ToolsMain runs the server of overwinter's tools if an agent has started the test binary for that.
// TestMain must call it first.
func ToolsMain() {
	if len(os.Args) == 3 && os.Args[1] == asTools {
		if err := tools.Serve(context.Background(), os.Args[2], os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// toolCalls records the calls of overwinter's tools that arrived at the runner's socket.
type toolCalls struct {
	mu   sync.Mutex
	made []agenttool.Call
}

func (c *toolCalls) all() []agenttool.Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made
}

// offerTools offers overwinter's tools to the agent, from its next process on, and answers its calls.
func (b *bench) offerTools(t *testing.T) {
	t.Helper()
	b.tools, b.calls = serveTools(b.lifetime(t))
}

// OfferTools answers calls of overwinter's tools until the test ends. It returns the command line
// of their server, for the launch of an agent, and a function that returns the calls so far.
// TestMain must call ToolsMain first.
func OfferTools(t *testing.T) (argv []string, made func() []agenttool.Call) {
	t.Helper()
	argv, calls := serveTools(t)
	return argv, calls.all
}

func serveTools(t *testing.T) ([]string, *toolCalls) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "owt") //nolint:usetesting // the path of a socket is at most 107 bytes, too short for the name of a test
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	socket := filepath.Join(dir, "tools.sock")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	calls := &toolCalls{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			calls.answer(conn)
		}
	}()
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		<-done
	})
	return []string{self, asTools, socket}, calls
}

// answer answers one call as a worker does.
func (c *toolCalls) answer(conn net.Conn) {
	defer conn.Close() // the caller already has its answer
	line, err := bufio.NewReader(conn).ReadBytes('\n')
	var call agenttool.Call
	if err != nil || json.Unmarshal(line, &call) != nil {
		return
	}
	answer, err := json.Marshal(agenttool.Execute(call).Answer)
	if err != nil {
		return
	}
	c.mu.Lock()
	c.made = append(c.made, call)
	c.mu.Unlock()
	_, _ = conn.Write(append(answer, '\n'))
}

func callsATool(t *testing.T, b *bench) { b.callsSetTitle(t) }

// callsAToolWithoutAsking checks that an agent that asks before every action calls overwinter's
// tool without asking.
func callsAToolWithoutAsking(t *testing.T, b *bench) {
	b.asks(t)
	b.callsSetTitle(t)
}

func (b *bench) callsSetTitle(t *testing.T) {
	t.Helper()
	if b.tools == nil {
		b.offerTools(t)
	}
	before := len(b.calls.all())
	r := b.turn(t, b.Prompts.Tool)
	require.Equal(t, session.OutcomeCompleted, r.end.Outcome, r.end.Reason)
	require.Empty(t, r.questions)
	made := b.calls.all()[before:]
	require.Len(t, made, 1, "frames:\n%s", printFrames(r.frames))
	require.Equal(t, agenttool.SetTitle, made[0].Tool)
	require.JSONEq(t, `{"title":"`+Title+`"}`, string(made[0].Input))
	use, result := only(t, r, conversation.ToolUse), only(t, r, conversation.ToolResult)
	require.Equal(t, conversation.Success, use.Status)
	require.Contains(t, use.Name, agenttool.SetTitle)
	require.Contains(t, string(result.Output), "has this title now")
	b.check(t)
}
