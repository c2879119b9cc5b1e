package activities

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/overwinter-dev/overwinter/internal/loopback"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// The stages of a workspace. Each is a script that does nothing if the stage is complete in this
// sandbox. A lock admits one attempt at a time: the exec of an attempt outlives its worker, and the
// attempt of the next worker waits for that exec. The marks are stored with the runner's state, so
// that a restored sandbox has them too.
var (
	//go:embed clone.sh
	cloneScript string
	//go:embed setup.sh
	setupScript string
)

const (
	cloneTimeout = 10 * time.Minute
	// setupSlack is the time that the exec of a setup may take beyond two time limits, since it may
	// have to wait for an earlier activity's script before it runs its own.
	setupSlack = 30 * time.Second
	// The exit code of a setup script that did not arrive completely and was not run.
	exitTruncated  = 75
	truncatedInput = "the setup script arrived truncated"
	// outputTail bounds the output of a failed stage in the reason.
	outputTail = 1000
)

// prepareWorkspace clones and sets up the workspace of a session in its sandbox, and skips
// completed stages. Once the store has the clone as complete, other programs run in the sandbox, so
// no credentials are sent into it.
func (g *sandboxes) prepareWorkspace(ctx context.Context, sessionID string, generation int64, sb *sandbox.Sandbox) error {
	s, err := g.store.SessionGet(ctx, sessionID)
	if err != nil {
		return stored(err)
	}
	if s.Workspace == nil {
		return nil
	}
	if s.Workspace.RepoURL != "" {
		cloned, err := g.store.SandboxIsCloned(ctx, s.ID, generation)
		if err != nil {
			return stored(err)
		}
		if !cloned {
			if err := g.reportStage(ctx, s.ID, "clone", func() error { return g.clone(ctx, sb, *s.Workspace) }); err != nil {
				return err
			}
			if err := g.store.SandboxCloned(ctx, s.ID, generation); err != nil {
				return stored(err)
			}
		}
	}
	if s.Workspace.Setup == "" {
		return nil
	}
	return g.reportStage(ctx, s.ID, "setup", func() error { return g.setUp(ctx, sb, *s.Workspace, s.TransitionNo) })
}

// reportStage runs a stage and reports its progress in the session's log. A stage that a transient
// error interrupts is reported again by the next attempt.
func (g *sandboxes) reportStage(ctx context.Context, sessionID, stage string, run func() error) error {
	if err := g.store.SetupRecord(ctx, sessionID, stage, "started"); err != nil {
		return stored(err)
	}
	err := run()
	status := "completed"
	switch {
	case TypeOf(err) == Refused:
		status = "failed"
		g.Logger.WarnContext(ctx, "workspace stage failed; the session needs a correction", slog.String("session_id", sessionID),
			slog.String("stage", stage), slog.String("error", ReasonOf(err)))
	case err != nil:
		return err
	}
	if recordErr := g.store.SetupRecord(ctx, sessionID, stage, status); recordErr != nil {
		return stored(recordErr) // the next attempt gets the same result of the stage
	}
	return err
}

// clone fetches the repository. Its credentials are passed by stdin and are only in the environment
// of git. judgeClone decides which failures are retried.
func (g *sandboxes) clone(ctx context.Context, sb *sandbox.Sandbox, ws session.Workspace) error {
	u, err := url.Parse(ws.RepoURL)
	if err != nil {
		return userError(err)
	}
	credentials, err := g.credentials(ctx, u)
	if err != nil {
		return err
	}
	user, password, _ := strings.Cut(credentials.Reveal(), ":")
	repoURL := ws.RepoURL
	if loopback.IsHost(u.Hostname()) {
		n, err := loopback.NetworkOf(ctx, g.Sandbox)
		if err != nil {
			return err
		}
		if n != nil {
			if repoURL, err = loopback.FromSandbox(*n, "repoUrl", repoURL); err != nil {
				return userError(err)
			}
		}
	}
	seen, err := url.Parse(repoURL) // git asks for the credentials of the host in its URL
	if err != nil {
		return final(Refused, err)
	}
	repoURL = seen.Scheme + repoURL[len(seen.Scheme):] // git accepts schemes in lower case only
	err = g.stage(ctx, sb, stage{
		script: cloneScript, args: []string{repoURL, ws.Ref, seen.Scheme, seen.Host},
		stdin: []byte(user + "\n" + password + "\n"), timeout: cloneTimeout, hide: password,
		mask: secret.NewMasker([]secret.Named{{Name: secret.GitName(u.Host), Value: credentials}}),
	})
	if err == nil {
		return nil
	}
	if failed, ok := errors.AsType[*stageError](err); ok {
		failed.output = afterTime.ReplaceAllString(failed.output, "")
	}
	return g.judgeClone(ctx, sb, u, password != "" || user != "", fmt.Errorf("clone the repository: %w", err))
}

// credentials returns those stored for the host of a repository. They are empty unless they are
// sent over https or stay on the machine.
func (g *sandboxes) credentials(ctx context.Context, u *url.URL) (secret.Value, error) {
	if u.Scheme != "https" && !loopback.IsHost(u.Hostname()) {
		return secret.Value{}, nil
	}
	name := secret.GitName(strings.ToLower(u.Host))
	stored, err := g.Secrets.Secrets(ctx, []string{name})
	return stored[name].Value, err
}

// isPrivate reports whether credentials are sent for the repository of a session.
func (g *sandboxes) isPrivate(ctx context.Context, sessionID string) (bool, error) {
	s, err := g.store.SessionGet(ctx, sessionID)
	if err != nil {
		return false, stored(err)
	}
	if s.Workspace == nil || s.Workspace.RepoURL == "" {
		return false, nil
	}
	if u, err := url.Parse(s.Workspace.RepoURL); err == nil { // the clone refuses an invalid one
		credentials, err := g.credentials(ctx, u)
		return credentials.Reveal() != "", err
	}
	return false, nil
}

// setUp runs the session's setup script. transition is the number of the session's current state.
// While the session stays in that state, all attempts together run the script once and get the same
// result, even if the worker that started it is lost. A failure, or a script that was killed at its
// time limit, needs a person: recover changes the state, so that the script runs again.
func (g *sandboxes) setUp(ctx context.Context, sb *sandbox.Sandbox, ws session.Workspace, transition int64) error {
	err := g.stage(ctx, sb, stage{
		script: setupScript, stdin: []byte(ws.Setup), timeout: 2*g.SetupTimeout + setupSlack,
		args: []string{strconv.FormatInt(transition, 10), strconv.Itoa(int(g.SetupTimeout.Seconds())), strconv.Itoa(len(ws.Setup))},
	})
	if err == nil {
		return nil
	}
	err = fmt.Errorf("set the workspace up: %w", err)
	failed, ok := errors.AsType[*stageError](err)
	if !ok || failed.truncated() {
		return err
	}
	if failed.killed() { // the cause may be the sandbox's end, which its provider may report a moment later
		runs, pollErr := g.outlives(ctx, sb)
		if pollErr != nil || !runs {
			return errors.Join(err, pollErr)
		}
	}
	return userError(err)
}

// outlives reports whether a sandbox still runs some time after one of its processes was killed.
func (g *sandboxes) outlives(ctx context.Context, sb *sandbox.Sandbox) (bool, error) {
	for asked := 1; ; asked++ {
		status, err := sb.Poll(ctx)
		switch {
		case sandbox.IsGone(err):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("ask for sandbox %s: %w", sb.ID(), err)
		case !status.Running, asked == confirmQuestions:
			return status.Running, nil
		}
		if err := g.pause(ctx); err != nil {
			return false, err
		}
	}
}

type stage struct {
	script  string
	args    []string
	stdin   []byte
	timeout time.Duration
	hide    string // never to be repeated in an error
	mask    *secret.Masker
}

// stageError is a stage that ran and failed.
type stageError struct {
	code   int
	output string
}

func (e *stageError) Error() string {
	return fmt.Sprintf("exit code %d: %s", e.code, e.output)
}

// unauthorized reports whether a server refused git's credentials, or asked for credentials that
// are not stored.
func (e *stageError) unauthorized() bool {
	return strings.Contains(e.output, "Authentication failed") || strings.Contains(e.output, "could not read Username")
}

// killed reports whether the stage's own shell was killed.
func (e *stageError) killed() bool { return e.code == 128+int(syscall.SIGKILL) }

// truncated reports whether the stage did nothing because its input was truncated.
func (e *stageError) truncated() bool { return e.code == exitTruncated && e.output == truncatedInput }

func (g *sandboxes) stage(ctx context.Context, sb *sandbox.Sandbox, s stage) error {
	paths := runner.DefaultPaths()
	argv := append([]string{"sh", "-c", s.script, "overwinter", paths.Workspace, paths.State}, s.args...)
	started := time.Now()
	result, err := sb.Run(ctx, sandbox.RunSpec{
		Argv: argv, Stdin: s.stdin, Timeout: s.timeout, MaxOutput: 64 << 10, Env: map[string]string{"HOME": paths.Home},
	})
	if err != nil {
		return err
	}
	if result.Code == 0 {
		g.Logger.InfoContext(ctx, "workspace stage done", slog.String("sandbox_id", sb.ID()), slog.Duration("duration", time.Since(started)))
		return nil
	}
	output := bytes.TrimSpace(append(result.Stdout, result.Stderr...))
	if len(output) > outputTail {
		output = output[len(output)-outputTail:]
	}
	text := strings.ToValidUTF8(string(output), "\uFFFD")
	text = s.mask.Text(text)
	if s.hide != "" {
		text = strings.ReplaceAll(text, s.hide, "[redacted]")
	}
	return &stageError{code: result.Code, output: text}
}
