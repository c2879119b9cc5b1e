package activities_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/demo"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/sandbox/modalsandbox"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// workerVariable makes this program a worker that makes one attempt at a turn: a separate process,
// so that it can die.
const workerVariable = "ACTIVITIES_TEST_WORKER"

// order is the input of such a worker.
type order struct {
	URL, Modal, TokenID, TokenSecret string
	Turn                             activities.TurnRequest
	Mask                             string // a secret named PASSPHRASE; "" for none
}

// Output of the agent that crashes the worker.
const (
	deadly    = "deadly-marker"
	panicking = "panic-marker"
)

// fragile is the demo agent, with a translator that ends its process at some frames.
type fragile struct{ demo.Adapter }

func (f fragile) NewTranslator(run agent.RunContext, state []byte) (agent.Translator, error) {
	t, err := f.Adapter.NewTranslator(run, state)
	return fragileTranslator{t}, err
}

type fragileTranslator struct{ agent.Translator }

func (f fragileTranslator) Translate(frame agent.Frame) (agent.Translation, error) {
	// The echoed prompt has the words separated.
	if bytes.Contains(frame.Data, []byte(deadly)) {
		syscall.Kill(os.Getpid(), syscall.SIGKILL) //nolint:errcheck // like the kernel when memory runs out
		select {}
	}
	if bytes.Contains(frame.Data, []byte(panicking)) {
		panic("cannot handle this frame")
	}
	return f.Translator.Translate(frame)
}

// workerMain makes the attempt, and prints its result.
func workerMain(text string) int {
	err := func() error {
		var o order
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			return err
		}
		ctx := context.Background()
		db, err := postgres.Open(ctx, o.URL, postgres.Options{})
		if err != nil {
			return err
		}
		defer db.Close()
		drv, err := modalsandbox.New(modalsandbox.Config{ServerURL: o.Modal, TokenID: o.TokenID, TokenSecret: secret.NewValue(o.TokenSecret)})
		if err != nil {
			return err
		}
		defer drv.Close()
		installation, err := db.Installation(ctx)
		if err != nil {
			return err
		}
		keys, err := secret.NewKeyring(masterKey)
		if err != nil {
			return err
		}
		appender := eventlog.NewAppender(db, eventlog.AppenderOptions{})
		appender.Start()
		defer appender.Stop(ctx)
		var masked masks
		if o.Mask != "" {
			masked.masker = secret.NewMasker([]secret.Named{{Name: "PASSPHRASE", Value: secret.NewValue(o.Mask)}})
		}
		_, turns := activities.New(activities.Config{
			Masks: masked, Store: db, Log: appender, Agents: agent.NewRegistry(fragile{demo.New()}), Keys: keys, Logger: slog.New(slog.DiscardHandler),
			Sandbox: sandbox.NewProvider(drv, sandbox.Options{Installation: installation, PollInterval: 200 * time.Millisecond}),
		})
		out, err := do(&harness{}, attempt{}, turns.RunTurn, o.Turn)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(out)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// process is a worker in a separate process.
type process struct {
	*exec.Cmd
	stdout, stderr bytes.Buffer
}

// worker starts a worker that makes the next attempt at a turn.
func (b *harness) worker(t *testing.T, in activities.TurnRequest) *process {
	t.Helper()
	return b.maskingWorker(t, in, "")
}

// maskingWorker starts a worker that masks a secret named PASSPHRASE.
func (b *harness) maskingWorker(t *testing.T, in activities.TurnRequest, mask string) *process {
	t.Helper()
	in.Dispatch = b.dispatches.Add(1)
	text, err := json.Marshal(order{URL: b.url, Modal: modal.URL(), TokenID: modal.Token().ID, TokenSecret: modal.Token().Secret, Turn: in, Mask: mask})
	require.NoError(t, err)
	p := &process{Cmd: exec.Command(os.Args[0])}
	p.Env = append(os.Environ(), workerVariable+"="+string(text))
	p.Stdout, p.Stderr = &p.stdout, &p.stderr
	require.NoError(t, p.Start())
	t.Cleanup(func() {
		if p.ProcessState == nil {
			p.Process.Kill() //nolint:errcheck // it may have ended
			p.Wait()         //nolint:errcheck // it was killed
		}
	})
	return p
}

// killed waits for the process to be killed.
func (p *process) killed(t *testing.T) {
	t.Helper()
	err := p.Wait()
	status, ok := p.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, ok && status.Signaled(), "%v: %s", err, &p.stderr)
}

// result waits for the result of the attempt.
func (p *process) result(t *testing.T) activities.TurnResult {
	t.Helper()
	require.NoError(t, p.Wait(), "%s", &p.stderr)
	var out activities.TurnResult
	require.NoError(t, json.Unmarshal(p.stdout.Bytes(), &out))
	return out
}

// requireQuarantined checks the end of a run, and that the session continues.
func (b *harness) requireQuarantined(t *testing.T, ready activities.SandboxReady, in activities.TurnRequest, result activities.TurnResult) {
	t.Helper()
	require.Equal(t, session.OutcomeFailed, result.Outcome)
	require.Equal(t, "quarantined", result.Reason)
	p := b.prompt(t, in.PromptID)
	require.Equal(t, session.PromptFailed, p.Status)
	require.Equal(t, "quarantined", p.Reason)
	problems := 0
	for _, e := range b.events(t) {
		if e.Type == "error" && strings.Contains(string(e.Data), `"code":"quarantined"`) {
			problems++
		}
	}
	require.Equal(t, 1, problems)
	require.Len(t, b.of(t, in.RunID, "turn_end"), 1)

	next := b.claim(t, ready, "all is well")
	out := b.worker(t, next).result(t)
	require.Equal(t, session.OutcomeCompleted, out.Outcome, out.Reason)
	require.Equal(t, "all is well", b.output(t, next.RunID))
}

// When the deadly frame arrives, the first attempt has stored the earlier frames. The frames in
// between may or may not be read with it; either way the second loss counts at the same position.
func TestRunIsQuarantinedAfterTwoWorkerLosses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	in := b.claim(t, ready, "before it\n$ until [ -e /tmp/go ]; do sleep 0.05; done; for i in 1 2 3; do echo line $i; done; "+
		"printf 'deadly-%s\\n' marker\n$ sleep 600")
	first := b.worker(t, in)
	require.Eventually(t, func() bool { return b.output(t, in.RunID) == "before it" }, waitLimit, 5*time.Millisecond)
	b.shell(t, ready.SandboxID, "touch /tmp/go")
	first.killed(t)
	require.Empty(t, b.run(t, in.RunID).Outcome)
	b.worker(t, in).killed(t)
	require.Empty(t, b.run(t, in.RunID).Outcome)
	b.requireQuarantined(t, ready, in, b.worker(t, in).result(t))
	require.Equal(t, "before it", b.output(t, in.RunID), "what came before is kept")
}

func TestRunIsQuarantinedAfterTwoPanics(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	in := b.claim(t, ready, "$ printf 'panic-%s\\n' marker")
	for range 2 {
		p := b.worker(t, in)
		require.Error(t, p.Wait())
		require.Equal(t, 1, p.ProcessState.ExitCode(), "the panic is an error of the attempt")
		require.Contains(t, p.stderr.String(), "cannot handle this frame")
	}
	b.requireQuarantined(t, ready, in, b.worker(t, in).result(t))
}

// A long turn survives the loss of its workers, which are killed while it prints, while it is
// silent, twice at the same position, and right after they attach; another one is stopped.
func TestUnrelatedTurnIsNotQuarantined(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ready := b.create(t)
	words := strings.TrimSpace(strings.Repeat("word ", 100))
	in := b.claim(t, ready, "slow 30ms: "+words+"\n$ while [ ! -e /tmp/go ]; do sleep 0.1; done\nslow 200ms: "+words+" the end")
	opened := false
	quiet := func() bool { return !opened && len(b.toolsOf(t, in.RunID)) > 0 }
	// On a busy machine the agent says the first words before four workers have begun: then it is silent.
	reaches := func(frame int64) {
		t.Helper()
		require.Eventually(t, func() bool { return b.run(t, in.RunID).LastFrame >= frame || quiet() }, waitLimit, 5*time.Millisecond)
	}
	attempts := int64(0)
	lose := func(when func()) {
		t.Helper()
		p := b.worker(t, in)
		attempts++
		require.Eventually(t, func() bool { return b.run(t, in.RunID).Attempt == attempts }, waitLimit, 5*time.Millisecond)
		when()
		require.NoError(t, p.Process.Kill())
		p.killed(t)
	}
	for range 4 { // while it prints
		at := b.run(t, in.RunID).LastFrame
		lose(func() { reaches(at + 3) })
	}
	lose(func() { b.await(t, in.RunID, "block_complete"); b.silent(t, in) })
	for range 4 { // while it is silent
		at := b.run(t, in.RunID).LastFrame
		lose(func() { b.silent(t, in) })
		require.Equal(t, at, b.run(t, in.RunID).LastFrame, "at the same position")
	}
	opened = true
	b.shell(t, ready.SandboxID, "touch /tmp/go")
	for range 2 { // before it has read the waiting frames
		lose(func() {})
	}
	for range 2 {
		at := b.run(t, in.RunID).LastFrame
		lose(func() { reaches(at + 3) })
	}
	out := b.worker(t, in).result(t)
	require.Equal(t, session.OutcomeCompleted, out.Outcome, out.Reason)
	require.Equal(t, words+words+" the end", b.output(t, in.RunID))
}

// silent waits until the turn's shell runs and all that came before is committed.
func (b *harness) silent(t *testing.T, in activities.TurnRequest) {
	t.Helper()
	require.Eventually(t, func() bool { return b.run(t, in.RunID).Attempt > 0 && len(b.toolsOf(t, in.RunID)) > 0 }, waitLimit, 5*time.Millisecond)
}

// toolsOf returns the tool calls that a run has begun.
func (b *harness) toolsOf(t *testing.T, runID string) []string {
	t.Helper()
	var out []string
	for _, e := range b.of(t, runID, "block_start") {
		if strings.Contains(string(e.Data), `"tool_use"`) {
			out = append(out, string(e.Data))
		}
	}
	return out
}

// The agent prints a key word by word, one frame each, and the worker's process is killed once the
// first is committed.
func TestSplitKeyIsMaskedAfterWorkerKill(t *testing.T) {
	t.Parallel()
	const key = "correct horse battery staple"
	b := setup(t)
	ready := b.create(t)
	in := b.claim(t, ready, "slow 2s: it is "+key+" indeed")
	held := func() string {
		var state struct {
			Held []struct{ T string } `json:"held"`
		}
		if raw := b.run(t, in.RunID).Translator; len(raw) > 0 {
			require.NoError(t, json.Unmarshal(raw, &state))
		}
		var text string
		for _, h := range state.Held {
			text += h.T
		}
		return text
	}
	p := b.maskingWorker(t, in, key)
	require.Eventually(t, func() bool { return strings.HasPrefix(held(), "correct") }, waitLimit, 5*time.Millisecond)
	require.NoError(t, p.Process.Kill())
	p.killed(t)
	require.True(t, strings.HasPrefix(held(), "correct") && len(held()) < len(key), "%q: killed within the key", held())
	out := b.maskingWorker(t, in, key).result(t)
	require.Equal(t, session.OutcomeCompleted, out.Outcome, out.Reason)
	require.Equal(t, "it is [redacted PASSPHRASE] indeed", b.output(t, in.RunID))
	for _, e := range b.events(t) {
		if e.RunID == in.RunID && e.Type != "prompt" {
			require.NotContains(t, string(e.Data), "correct horse", e.Type)
		}
	}
}
