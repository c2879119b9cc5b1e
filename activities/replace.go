package activities

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
)

// Runner is the runner's program that this worker installs in sandboxes.
type Runner struct {
	Program string // its path on this machine
	Build   string // see runner.Build
}

// FindRunner returns the runner at a path of this machine.
func FindRunner(program string) (Runner, error) {
	build, err := runner.Build(program)
	return Runner{Program: program, Build: build}, err
}

// A snapshot contains the runner of its time, and a deploy may have changed the protocol. So a
// sandbox whose runner is of another build, or of an unknown one, is started with a command that
// waits until this worker's runner is installed. The command uses no feature that only some runners
// have.
const awaitRunner = `until [ -e "$1" ]; do sleep 0.05; done; shift; exec "$@"`

// readyMark is the file that lets the runner of a generation start. A snapshot contains the marks
// of earlier generations.
func readyMark(generation int64) string {
	return fmt.Sprintf("%s.ready-%d", runner.DefaultPaths().Binary, generation)
}

// awaitingCommand is serveCommand for a sandbox whose runner must be replaced first.
func (g *sandboxes) awaitingCommand(generation int64) []string {
	return append([]string{"sh", "-c", awaitRunner, "await-runner", readyMark(generation)}, g.serveCommand()...)
}

// outdated reports whether a snapshot's runner is of another build than this worker's.
func (g *sandboxes) outdated(build string) bool {
	return g.Runner.Program != "" && build != g.Runner.Build
}

// replaceRunner installs this worker's runner in a sandbox that waits for it. It may be repeated:
// the running program is not affected.
func (g *sandboxes) replaceRunner(ctx context.Context, sb *sandbox.Sandbox, generation int64) error {
	program, err := os.ReadFile(g.Runner.Program)
	if err != nil {
		return fmt.Errorf("read the runner: %w", err)
	}
	paths := runner.DefaultPaths()
	fresh := paths.Binary + ".new"
	if err := sb.WriteFile(ctx, fresh, program, 0o755); err != nil {
		return fmt.Errorf("replace the runner: %w", err)
	}
	script := `mv -f "$1" "$2" && : > "$3"`
	result, err := sb.Run(ctx, sandbox.RunSpec{
		Argv: []string{"sh", "-c", script, "replace-runner", fresh, paths.Binary, readyMark(generation)}, Timeout: commandTimeout,
	})
	if err == nil && result.Code != 0 {
		err = fmt.Errorf("mv ended with %d: %s", result.Code, result.Stderr)
	}
	if err != nil {
		return fmt.Errorf("replace the runner: %w", err)
	}
	g.Logger.InfoContext(ctx, "replaced the runner of a snapshot", slog.String("sandbox_id", sb.ID()), slog.String("build", g.Runner.Build))
	return nil
}
