package activities_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/demo"
	"github.com/overwinter-dev/overwinter/internal/fork"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// installed is the demo agent by another name, which commands install.
type installed struct {
	demo.Adapter
	commands [][]string
}

func (installed) Name() string { return "installed" }

func (i installed) Installation() agent.Installation { return agent.Installation{Commands: i.commands} }

// TestForkWithAnotherAgentInstallsIt restores such a fork until its agent can be installed,
// and one more time.
func TestForkWithAnotherAgentInstallsIt(t *testing.T) {
	t.Parallel()
	b := asleep(t, nil)
	head := b.head(t)
	fork := fork.Fork{ID: session.NewID(session.SessionPrefix), SessionID: b.id, BundleID: head.ID, Agent: "installed"}
	_, _, err := b.db.SessionFork(b.ctx, fork, nil, session.Idempotency{})
	require.NoError(t, err)
	b.id = fork.ID
	with := func(commands ...[]string) {
		b.config.Agents = agent.NewRegistry(demo.New(), installed{commands: commands})
		b.build()
	}
	count := []string{"sh", "-c", "echo once >> /overwinter/installations"}

	with(count, []string{"sh", "-c", "echo no network >&2; exit 7"})
	_, err = b.restore(1)
	require.Equal(t, activities.Refused, activities.TypeOf(err), "%v", err)
	require.Contains(t, activities.ReasonOf(err), "install installed in the sandbox of another agent: sh ended with 7: no network")

	// The sandbox of the refused attempt is not reused without its agent.
	with(count)
	ready, err := b.restore(2)
	require.NoError(t, err)
	require.EqualValues(t, 2, ready.Generation)
	require.Equal(t, receipt.Receipt{
		Kind: receipt.Partial, Missing: []string{"memory of demo: the agent has the conversation as a note"}, HandedFrom: demo.Name,
	}, *ready.Receipt)
	require.Equal(t, "kept", b.shell(t, ready.SandboxID, "cat /workspace/notes"))
	require.Equal(t, "once\n", b.shell(t, ready.SandboxID, "cat /overwinter/installations"))
	again, err := b.restore(2)
	require.NoError(t, err)
	require.Equal(t, ready, again)
	require.Equal(t, "once\n", b.shell(t, ready.SandboxID, "cat /overwinter/installations"), "a repeated attempt finds the mark")

	// The fork's own bundles contain the agent.
	_, err = b.save(ready)
	require.NoError(t, err)
	b.terminate(t, ready)
	later, err := b.restore(3)
	require.NoError(t, err)
	require.Equal(t, "once\n", b.shell(t, later.SandboxID, "cat /overwinter/installations"))
}
