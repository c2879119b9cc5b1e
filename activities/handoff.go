package activities

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const (
	// installTimeout bounds each command that installs an agent in a sandbox.
	installTimeout = 5 * time.Minute
	// maxInstallOutput bounds the output of such a command that is kept.
	maxInstallOutput = 64 << 10
)

// installAgent installs the agent of a session in a sandbox that was restored from a snapshot of
// another agent's sandbox, unless the sandbox has it. The mark is written last and is part of later
// snapshots. The commands may run twice, even concurrently.
func (g *sandboxes) installAgent(ctx context.Context, sessionID string, sb *sandbox.Sandbox) error {
	s, err := g.store.SessionGet(ctx, sessionID)
	if err != nil {
		return stored(err)
	}
	adapter, err := g.Agents.Get(s.Agent)
	if err != nil {
		return final(Refused, err)
	}
	installer, ok := adapter.(agent.Installer)
	if !ok {
		return nil
	}
	mark := path.Join(runner.DefaultPaths().State, "installed-"+s.Agent)
	found, err := sb.Run(ctx, sandbox.RunSpec{Argv: []string{"test", "-e", mark}, Timeout: commandTimeout})
	if err != nil {
		return fmt.Errorf("look for %s: %w", s.Agent, err)
	}
	if found.Code == 0 {
		return nil
	}
	return g.reportStage(ctx, sessionID, session.StepImage, func() error {
		for _, command := range append(installer.Installation().Commands, []string{"touch", mark}) {
			result, err := sb.Run(ctx, sandbox.RunSpec{Argv: command, Timeout: installTimeout, MaxOutput: maxInstallOutput})
			if err != nil {
				return fmt.Errorf("install %s: %w", s.Agent, err)
			}
			if result.Code != 0 {
				output := strings.TrimSpace(string(result.Stdout) + string(result.Stderr))
				output = strings.ToValidUTF8(output[max(0, len(output)-outputTail):], "\uFFFD")
				return final(Refused, fmt.Errorf("install %s in the sandbox of another agent: %s ended with %d: %s", s.Agent, command[0], result.Code, output))
			}
		}
		return nil
	})
}
