package activities_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/sandbox/memsandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// forged is a program of the sandbox in the place of its runner.
type forged struct {
	welcome *runner.Welcome
	attach  func(send func(runner.Message), run string) // after the prompt was delivered
	seal    *session.Manifest
	verify  *runner.Verification
}

// forge replaces the runner of sandboxes in memory.
func (b *bundle) forge(f forged) {
	b.memory.Handle("overwinter-runner", func(ctx context.Context, p *memsandbox.Proc) int {
		switch {
		case p.Args[1] == "attach" && (f.attach != nil || f.welcome != nil):
			return f.link(ctx, p)
		case p.Args[1] == "seal" && f.seal != nil:
			return answer(p, runner.SealLine{Seal: &runner.Seal{Manifest: *f.seal}})
		case p.Args[1] == "verify" && f.verify != nil:
			return answer(p, f.verify)
		}
		return idleRunner(ctx, p)
	})
}

func answer(p *memsandbox.Proc, v any) int {
	if _, err := io.Copy(io.Discard, p.Stdin); err != nil {
		return runner.ExitFailed
	}
	if err := json.NewEncoder(p.Stdout).Encode(v); err != nil {
		return runner.ExitFailed
	}
	return runner.ExitOK
}

// link speaks for the run of the first hello, and keeps the exec until its link is closed.
func (f forged) link(ctx context.Context, p *memsandbox.Proc) int {
	r := bufio.NewReader(p.Stdin)
	send := func(m runner.Message) { _ = runner.WriteMessage(p.Stdout, m) } // the worker may be gone
	for {
		m, err := runner.ReadMessage(r)
		if err != nil {
			return runner.ExitFailed
		}
		switch m := m.(type) {
		case *runner.Hello:
			if f.welcome != nil {
				send(f.welcome)
				continue
			}
			send(&runner.Welcome{Version: runner.ProtocolVersion, Delivery: runner.NotStarted, LastFrame: -1, Open: true, Agent: true})
			go f.attach(send, m.Run)
			defer func() { <-ctx.Done() }()
		default:
		}
	}
}

func frameOf(no int64, format string, args ...any) *runner.Frame {
	return &runner.Frame{No: no, Stream: runner.Stdout, At: time.Now(), Data: fmt.Appendf(nil, format, args...)}
}

const completedLine = `{"type":"result","runId":%q,"outcome":"completed"}`

// TestARunThatIsOverEndsAlthoughItsRunnerNeverSaysThatItHasFlushed: the link is kept alive, so that nothing else ends the wait.
func TestARunThatIsOverEndsAlthoughItsRunnerNeverSaysThatItHasFlushed(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	b.config.FlushTimeout = 100 * time.Millisecond
	b.build()
	ready := b.create(t)
	b.forge(forged{attach: func(send func(runner.Message), run string) {
		send(frameOf(0, completedLine, run))
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				send(&runner.Alive{})
			case <-t.Context().Done():
				return
			}
		}
	}})
	result, err := b.begin(t, b.claim(t, ready, "hello")).wait(t)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, result.Outcome)
}

// TestARunThatItsRunnerReportsAsInterruptedEndsAfterAPause: if its prompt is to run again, the next run may end in the same way.
func TestARunThatItsRunnerReportsAsInterruptedEndsAfterAPause(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	b.config.InterruptedPause = 500 * time.Millisecond
	b.build()
	ready := b.create(t)
	b.forge(forged{welcome: &runner.Welcome{Version: runner.ProtocolVersion, Delivery: runner.Cut, LastFrame: -1}})
	in := b.claim(t, ready, "hello")
	began := time.Now()
	_, err := b.begin(t, in).wait(t)
	requireType(t, activities.DeliveryUnknown, err)
	require.GreaterOrEqual(t, time.Since(began), b.config.InterruptedPause)
}

// TestASealThatIsForgedIsBounded: what a restore reports is an event and in the workflow's history, which would refuse many
// megabytes, so that the session could not wake.
func TestASealThatIsForgedIsBounded(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	ready := b.create(t)
	manifest := session.Manifest{Lost: []string{strings.Repeat("lost ", 1<<18)}, Tree: &session.ManifestTree{Digest: strings.Repeat("d", 1<<20)}}
	var missing []string
	for i := range 50_000 {
		path := fmt.Sprintf("/root/%0100d", i)
		manifest.AgentFiles = append(manifest.AgentFiles, session.ManifestFile{Path: path, Size: 1})
		missing = append(missing, path)
	}
	b.forge(forged{seal: &manifest, verify: &runner.Verification{Missing: missing, Mismatched: []string{}}})
	b.awake(t)
	_, err := b.save(ready)
	require.NoError(t, err)
	head := b.head(t).Manifest
	require.Len(t, head.AgentFiles, session.MaxTranscriptFiles)
	require.Empty(t, head.Lost)
	require.Len(t, head.Tree.Digest, 1024)
	b.terminate(t, ready)
	restored, err := b.restore(2)
	require.NoError(t, err)
	require.Equal(t, session.ReceiptPartial, restored.Receipt.Kind)
	require.Len(t, restored.Receipt.Missing, session.MaxReceiptItems+1)
	require.Equal(t, fmt.Sprintf("%d more", 50_000-session.MaxReceiptItems), restored.Receipt.Missing[session.MaxReceiptItems])
}
