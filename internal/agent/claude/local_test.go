package claude_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/claude"
)

func TestSessionsOfAMachineAreFoundInASandbox(t *testing.T) {
	t.Parallel()
	local := claude.New().Local(agent.Place{Home: "/home/ada", Workspace: "/home/ada/my project_2"})
	require.Equal(t, "/home/ada/.claude/projects/-home-ada-my-project-2", local.Root)
	const id = "0196f1a0-1111-4222-8333-444455556666"
	memory, err := local.MemoryID(id)
	require.NoError(t, err)
	back, err := local.LocalID(memory)
	require.NoError(t, err)
	require.Equal(t, id, back)
	launch, err := claude.New().Launch(agent.LaunchInput{SessionID: memory, Home: "/root", Workspace: "/workspace", Resume: true})
	require.NoError(t, err)
	require.Contains(t, launch.Argv, id, "the sandbox resumes the session of the machine")
	require.Len(t, local.Files(id), len(launch.Transcripts))
	for _, wrong := range []string{"", "notes", "0196F1A0-1111-4222-8333-444455556666", id + "/.."} {
		_, err := local.MemoryID(wrong)
		require.Error(t, err, wrong)
	}
}
