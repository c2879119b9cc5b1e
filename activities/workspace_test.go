package activities_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/agent/demo"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// withSetup returns a harness whose session has a setup script. Each run of the script adds a line
// to /workspace/runs.
func withSetup(t *testing.T, script string) *harness {
	t.Helper()
	b := setup(t)
	s, _, err := b.db.SessionCreate(b.ctx, session.Session{
		ID: session.NewID(session.SessionPrefix), Agent: demo.Name, Lazy: true,
		Workspace: &session.Workspace{Setup: "echo run >>runs\n" + script},
	}, nil, session.Idempotency{})
	require.NoError(t, err)
	b.id = s.ID
	return b
}

// recover moves the session to error and then to restoring, like a person's command.
func (b *harness) recover(t *testing.T) {
	t.Helper()
	b.transit(t, session.EventFail)
	b.transit(t, session.EventRecover)
}

// beginCreate starts an attempt at creating the session's sandbox.
func (b *harness) beginCreate(t *testing.T) *pending[activities.SandboxReady] {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &pending[activities.SandboxReady]{done: make(chan struct{}), cancel: cancel}
	in := activities.SandboxRequest{SessionID: b.id, Generation: 1}
	go func() {
		defer close(p.done)
		p.out, p.err = do(b, attempt{ctx: ctx}, b.control.CreateSandbox, in)
	}()
	t.Cleanup(func() {
		cancel()
		<-p.done
	})
	return p
}

// awaitSetup waits until the setup script has begun in the session's sandbox, which it returns.
func (b *harness) awaitSetup(t *testing.T) string {
	t.Helper()
	var id string
	require.Eventually(t, func() bool {
		rows, err := b.db.SandboxesOpen(b.ctx, b.id)
		if err != nil || len(rows) == 0 || rows[0].SandboxID == "" {
			return false
		}
		id = rows[0].SandboxID
		result, err := b.provider.Open(id).Run(b.ctx, runOf("test -e /workspace/runs"))
		return err == nil && result.Code == 0
	}, waitLimit, 20*time.Millisecond)
	return id
}

const waitForGo = "until [ -e go ]; do sleep 0.05; done\n"

func TestSetupScriptSurvivesLossOfItsWorker(t *testing.T) {
	t.Parallel()
	b := withSetup(t, waitForGo+"echo prepared >prepared")
	first := b.beginCreate(t)
	id := b.awaitSetup(t)
	first.cancel()
	_, err := first.wait(t)
	require.Error(t, err)

	second := b.beginCreate(t)
	// The second attempt waits: its process is blocked on the lock that the process of the first
	// attempt holds.
	require.Eventually(t, func() bool { return b.waitsForSetup(id) }, waitLimit, 20*time.Millisecond)
	b.shell(t, id, "touch /workspace/go")
	ready, err := second.wait(t)
	require.NoError(t, err)
	require.Equal(t, id, ready.SandboxID)
	require.Equal(t, "run\nprepared\n", b.shell(t, id, "cat /workspace/runs /workspace/prepared"))
	require.Equal(t, []string{"setup started", "setup completed"}, b.stages(t), "a stage that has not ended is reported once")
}

// stages returns the setup events of the session.
func (b *harness) stages(t *testing.T) (out []string) {
	t.Helper()
	for _, e := range b.of(t, "", "setup") {
		var data struct{ Stage, Status string }
		require.NoError(t, json.Unmarshal(e.Data, &data))
		out = append(out, data.Stage+" "+data.Status)
	}
	return out
}

// waitsForSetup reports whether a process in the sandbox waits for the lock of the setup.
func (b *harness) waitsForSetup(id string) bool {
	script := `for p in /proc/[0-9]*; do [ "$(tr '\0' ' ' <$p/cmdline 2>/dev/null)" = "flock 9 " ] && exit 0; done; exit 1`
	result, err := b.provider.Open(id).Run(b.ctx, runOf(script))
	return err == nil && result.Code == 0
}

func TestFailedSetupScriptRunsOnceUntilRecover(t *testing.T) {
	t.Parallel()
	b := withSetup(t, waitForGo+"[ -e fixed ] || { echo no such tool; exit 9; }")
	first := b.beginCreate(t)
	id := b.awaitSetup(t)
	first.cancel()
	_, err := first.wait(t)
	require.Error(t, err)
	b.shell(t, id, "touch /workspace/go; until [ -e /overwinter/state/workspace-setup-result ]; do sleep 0.05; done")

	for range 2 {
		_, err = b.beginCreate(t).wait(t)
		requireType(t, activities.Refused, err)
		require.ErrorContains(t, err, "exit code 9")
		require.ErrorContains(t, err, "no such tool")
	}
	require.Equal(t, "run\n", b.shell(t, id, "cat /workspace/runs"))

	b.shell(t, id, "touch /workspace/fixed")
	b.recover(t)
	ready, err := b.restore(2)
	require.NoError(t, err)
	require.Equal(t, id, ready.SandboxID)
	require.Equal(t, "run\nrun\n", b.shell(t, id, "cat /workspace/runs"))
}

func TestSetupScriptIsKilledAtTimeLimit(t *testing.T) {
	t.Parallel()
	b := withSetup(t, "[ -e fixed ] || { echo begun; (while :; do date >>alive; sleep 0.05; done) & wait; }")
	b.config.SetupTimeout = 2 * time.Second
	b.build()
	_, err := b.beginCreate(t).wait(t)
	requireType(t, activities.Refused, err)
	require.ErrorContains(t, err, "begun")
	require.ErrorContains(t, err, "did not end within 2 seconds and was killed")
	require.Equal(t, []string{"setup started", "setup failed"}, b.stages(t))
	id := b.awaitSetup(t)
	require.Empty(t, b.shell(t, id, `for p in /proc/[0-9]*; do tr '\0' ' ' <$p/cmdline 2>/dev/null; done | grep "/tmp/[t]mp" || :`),
		"nothing of the script is left")

	b.shell(t, id, "touch /workspace/fixed")
	b.recover(t)
	ready, err := b.restore(2)
	require.NoError(t, err)
	require.Equal(t, id, ready.SandboxID)
	require.Equal(t, "run\nrun\n", b.shell(t, id, "cat /workspace/runs"))
}

// TestKilledSetupShellIsDistinguishedFromRunningSetup kills the shell that waits for the script,
// like a provider at the timeout of an exec or a kernel without memory.
func TestKilledSetupShellIsDistinguishedFromRunningSetup(t *testing.T) {
	t.Parallel()
	b := withSetup(t, "[ -e fixed ] || sleep 1000")
	first := b.beginCreate(t)
	id := b.awaitSetup(t)
	b.shell(t, id, `for p in /proc/[0-9]*; do if tr '\0' ' ' 2>/dev/null <$p/cmdline | grep -q "^sh -c # [R]uns the session"; then kill -9 ${p#/proc/}; fi; done`)
	_, err := first.wait(t)
	requireType(t, activities.Refused, err)
	_, err = b.beginCreate(t).wait(t)
	requireType(t, activities.Refused, err)
	require.ErrorContains(t, err, "was killed before it ended")
	require.Eventually(t, func() bool { // a killed process is listed until it gets a CPU
		left := b.shell(t, id, `for p in /proc/[0-9]*; do tr '\0' ' ' <$p/cmdline 2>/dev/null; echo; done`)
		return !slices.Contains(strings.Split(left, "\n"), "sleep 1000 ")
	}, waitLimit, 20*time.Millisecond)

	b.shell(t, id, "touch /workspace/fixed")
	b.recover(t)
	_, err = b.restore(2)
	require.NoError(t, err)
	require.Equal(t, "run\nrun\n", b.shell(t, id, "cat /workspace/runs"))
}

// TestSandboxEndDuringSetupIsRetried kills the shell of the script together with its sandbox. The
// provider reports the end of the sandbox after that of the shell.
func TestSandboxEndDuringSetupIsRetried(t *testing.T) {
	t.Parallel()
	b := withSetup(t, "sleep 1000")
	first := b.beginCreate(t)
	id := b.awaitSetup(t)
	b.driver.set(func(f *faulty) { f.running = 1 })
	require.NoError(t, b.driver.Driver.Terminate(b.ctx, id))
	_, err := first.wait(t)
	requireType(t, activities.GenerationUnusable, err)
}

// TestSetupOfPreviousVersionRunsOnce covers the previous version, which recorded only that the
// script had begun.
func TestSetupOfPreviousVersionRunsOnce(t *testing.T) {
	t.Parallel()
	b := withSetup(t, "")
	old := runnerImage(b.provider)
	old.recipe.Commands = append(old.recipe.Commands, []string{"touch", "/overwinter/state/workspace-setup-begun"})
	b.config.Image = old
	b.build()
	for range 2 {
		_, err := b.beginCreate(t).wait(t)
		requireType(t, activities.Refused, err)
		require.ErrorContains(t, err, "was killed before it ended")
	}
	b.recover(t)
	ready, err := b.restore(2)
	require.NoError(t, err)
	require.Equal(t, "run\n", b.shell(t, ready.SandboxID, "cat /workspace/runs"))
}

// TestSecondCloneWaitsForFirst covers a clone whose exec outlives its worker. A concurrent second
// clone would delete the files that the first one writes.
func TestSecondCloneWaitsForFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	b.shell(t, ready.SandboxID, `mkdir /tmp/repo && cd /tmp/repo && git init -q && echo hello >README && git add . &&
		git -c user.name=a -c user.email=a@example.com commit -qm first
		cd /overwinter/state && echo precious >/workspace/precious
		setsid sh -c 'exec 9>>workspace-clone-lock; flock 9; touch /tmp/held; until [ -e /tmp/go ]; do sleep 0.05; done; : >workspace-cloned' >/dev/null 2>&1 &
		until [ -e /tmp/held ]; do sleep 0.05; done`)
	b.sql(t, `UPDATE sessions SET workspace = '{"repoUrl": "/tmp/repo"}' WHERE id = $1`, b.id)
	second := b.beginCreate(t)
	require.Eventually(t, func() bool { return b.waitsForSetup(ready.SandboxID) }, waitLimit, 20*time.Millisecond)
	require.Equal(t, "precious\n", b.shell(t, ready.SandboxID, "cat /workspace/precious"))
	b.shell(t, ready.SandboxID, "touch /tmp/go")
	_, err := second.wait(t)
	require.NoError(t, err)
	require.Equal(t, "precious\n", b.shell(t, ready.SandboxID, "cat /workspace/precious"))
}

type gitSecret string

func (s gitSecret) Secrets(ctx context.Context, names []string) (map[string]secret.Stored, error) {
	return kept{values: map[string]string{string(s): "robot:hunter2-password"}}.Secrets(ctx, names)
}

// Credentials are only sent into a sandbox while just the clone has run there, because a setup
// script may change which program receives the next ones.
func TestCredentialsAreNotSentIntoUsedSandbox(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.config.Secrets = gitSecret("git:git.example.invalid")
	b.build()
	ready := b.create(t)
	b.shell(t, ready.SandboxID, ": >/overwinter/state/workspace-cloned") // the clone is complete
	b.sql(t, `UPDATE sessions SET workspace = '{"repoUrl": "https://git.example.invalid/private", "setup": "exit 9"}' WHERE id = $1`, b.id)
	for range 2 { // the second is the next attempt, whose worker was lost
		_, err := b.beginCreate(t).wait(t)
		requireType(t, activities.Refused, err)
		require.ErrorContains(t, err, "exit code 9")
	}
	require.Equal(t, []string{"clone started", "clone completed", "setup started", "setup failed", "setup started", "setup failed"}, b.stages(t))

	b.recover(t)
	_, err := b.restore(2)
	require.ErrorContains(t, err, "clone the repository", "it is cloned again, in a fresh sandbox")
	require.False(t, b.running(t, ready.SandboxID))
}
