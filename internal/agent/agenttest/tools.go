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
	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/runner/tools"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// asTools is the first argument with which a test's binary is the server of overwinter's tools. Agents do not pass all of their
// variables on.
const asTools = "overwinter-test-as-tools"

// ToolsMain makes the test's binary the server of overwinter's tools if an agent has started it as that. TestMain must call it
// first.
func ToolsMain() {
	if len(os.Args) == 3 && os.Args[1] == asTools {
		if err := tools.Serve(context.Background(), os.Args[2], os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// toolCalls are the calls of overwinter's tools that came to the place of the runner.
type toolCalls struct {
	mu   sync.Mutex
	made []agenttool.Call
}

func (c *toolCalls) all() []agenttool.Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made
}

// offerTools answers the calls of the agent's process, which is offered the tools.
func (b *bench) offerTools(t *testing.T) *toolCalls {
	t.Helper()
	var calls *toolCalls
	b.tools, calls = serveTools(t)
	return calls
}

// OfferTools answers calls of overwinter's tools until the test ends. It returns the command line of their server, for the launch of an
// agent, and the calls that have come so far. TestMain must call ToolsMain first.
func OfferTools(t *testing.T) (argv []string, made func() []agenttool.Call) {
	t.Helper()
	argv, calls := serveTools(t)
	return argv, calls.all
}

func serveTools(t *testing.T) ([]string, *toolCalls) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "owt") //nolint:usetesting // a test's name is too long: a socket's path is at most 107 bytes
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
	defer conn.Close() // the caller has its answer
	line, err := bufio.NewReader(conn).ReadBytes('\n')
	var call agenttool.Call
	if err != nil || json.Unmarshal(line, &call) != nil {
		return
	}
	answer, err := json.Marshal(agenttool.Carry(call).Answer)
	if err != nil {
		return
	}
	c.mu.Lock()
	c.made = append(c.made, call)
	c.mu.Unlock()
	_, _ = conn.Write(append(answer, '\n'))
}

func callsATool(t *testing.T, b *bench) { b.callsSetTitle(t) }

// callsAToolWithoutAsking has an agent that asks before everything call the tool.
func callsAToolWithoutAsking(t *testing.T, b *bench) {
	b.permissions = permission.Rules{Default: permission.Ask}
	b.callsSetTitle(t)
}

func (b *bench) callsSetTitle(t *testing.T) {
	t.Helper()
	calls := b.offerTools(t)
	r := b.turn(t, b.Prompts.Tool)
	require.Equal(t, session.OutcomeCompleted, r.end.Outcome, r.end.Reason)
	require.Empty(t, r.questions)
	made := calls.all()
	require.Len(t, made, 1, "frames:\n%s", printFrames(r.frames))
	require.Equal(t, agenttool.SetTitle, made[0].Tool)
	require.JSONEq(t, `{"title":"`+Title+`"}`, string(made[0].Input))
	use, result := only(t, r, conversation.ToolUse), only(t, r, conversation.ToolResult)
	require.Equal(t, conversation.Success, use.Status)
	require.Contains(t, use.Name, agenttool.SetTitle)
	require.Contains(t, string(result.Output), "has this title now")
	b.check(t)
}
