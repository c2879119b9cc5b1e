package activities_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/sandbox/memsandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
	"github.com/overwinter-dev/overwinter/internal/turn"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// forged is a program of the sandbox that replaces its runner.
type forged struct {
	welcome *runner.Welcome
	attach  func(send func(runner.Message), run string) // after the prompt was delivered
	flushes bool                                        // it answers a flush
	rest    []*runner.Segment                           // that it sends when it flushes
	seal    *manifest.Manifest
	// segments are printed before the manifest of a seal.
	segments []*runner.Segment
	verify   *runner.Verification
}

// forge replaces the runner of sandboxes in memory.
func (b *harness) forge(f forged) {
	b.memory.Handle("overwinter-runner", func(ctx context.Context, p *memsandbox.Proc) int {
		switch {
		case p.Args[1] == "attach" && (f.attach != nil || f.welcome != nil):
			return f.link(ctx, p)
		case p.Args[1] == "seal" && f.seal != nil:
			lines := []any{}
			for _, s := range f.segments {
				lines = append(lines, runner.SealLine{Segment: s})
			}
			return answer(p, append(lines, runner.SealLine{Seal: &runner.Seal{Manifest: *f.seal}})...)
		case p.Args[1] == "verify" && f.verify != nil:
			return answer(p, f.verify)
		}
		return idleRunner(ctx, p)
	})
}

func answer(p *memsandbox.Proc, values ...any) int {
	if _, err := io.Copy(io.Discard, p.Stdin); err != nil {
		return runner.ExitFailed
	}
	for _, v := range values {
		if err := json.NewEncoder(p.Stdout).Encode(v); err != nil {
			return runner.ExitFailed
		}
	}
	return runner.ExitOK
}

// link acts as the runner for the run of the first hello, and keeps the exec until its link is
// closed.
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
		case *runner.Flush:
			for _, s := range f.rest {
				send(s)
			}
			if f.flushes {
				send(&runner.Flushed{ID: m.ID})
			}
		default:
		}
	}
}

func frameOf(no int64, format string, args ...any) *runner.Frame {
	return &runner.Frame{No: no, Stream: runner.Stdout, At: time.Now(), Data: fmt.Appendf(nil, format, args...)}
}

// logged returns the data of all events of a run.
func (b *harness) logged(t *testing.T, runID string) string {
	t.Helper()
	var out strings.Builder
	for _, e := range b.events(t) {
		if e.RunID == runID {
			fmt.Fprintf(&out, "%s %s\n", e.Type, e.Data)
		}
	}
	return out.String()
}

const completedLine = `{"type":"result","runId":%q,"outcome":"completed"}`

// TestEndedRunCompletesWithoutFlushOfRunner keeps the link alive, so that only the timeout ends the
// wait.
func TestEndedRunCompletesWithoutFlushOfRunner(t *testing.T) {
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

// TestRunEndsOnFrameGap sends a frame with a number that is too high. The number of a frame is the
// position of its run: after the highest number no further frame was read, and only an abort ended
// the run.
func TestRunEndsOnFrameGap(t *testing.T) {
	t.Parallel()
	for name, no := range map[string]int64{"the highest number": math.MaxInt64, "one is missing": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupMemory(t)
			ready := b.create(t)
			b.forge(forged{attach: func(send func(runner.Message), run string) {
				send(frameOf(0, `{"type":"assistant","runId":%q,"uuid":"u","content":"said before"}`, run))
				send(frameOf(no, `{"type":"assistant","runId":%q,"uuid":"v","content":"out of order"}`, run))
			}})
			in := b.claim(t, ready, "hello")
			_, err := b.begin(t, in).wait(t)
			requireType(t, activities.Refused, err)
			require.ErrorContains(t, err, fmt.Sprintf("sent frame %d after frame 0", no))
			require.Zero(t, b.run(t, in.RunID).LastFrame)
			logged := b.logged(t, in.RunID)
			require.Contains(t, logged, "said before")
			require.NotContains(t, logged, "out of order")
			_, err = do(b, attempt{}, b.control.SettleRun, activities.SettleRequest{RunID: in.RunID, Outcome: session.OutcomeFailed, Reason: activities.ReasonOf(err)})
			require.NoError(t, err)
			require.Equal(t, session.OutcomeFailed, b.run(t, in.RunID).Outcome)
		})
	}
}

// TestRunIsBoundedInLines continues a run that has printed almost as many lines as a turn may.
func TestRunIsBoundedInLines(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	ready := b.create(t)
	in := b.claim(t, ready, "hello")
	b.sql(t, "UPDATE runs SET last_frame = $2 WHERE id = $1", in.RunID, turn.MaxFrames-3)
	b.forge(forged{attach: func(send func(runner.Message), run string) {
		for no := int64(turn.MaxFrames - 2); no <= turn.MaxFrames; no++ {
			send(frameOf(no, " "))
		}
	}})
	_, err := b.begin(t, in).wait(t)
	requireType(t, activities.Refused, err)
	require.ErrorContains(t, err, fmt.Sprintf("printed more than %d lines", turn.MaxFrames))
	require.EqualValues(t, turn.MaxFrames-1, b.run(t, in.RunID).LastFrame)
}

// TestRunEndsOnRepeatedTranscriptGaps uses a forged runner that leaves the same gap in every
// attempt. An attempt after a gap asks its runner for the segments after the stored end, so the run
// was retried without end.
func TestRunEndsOnRepeatedTranscriptGaps(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	ready := b.create(t)
	b.forge(forged{attach: func(send func(runner.Message), _ string) {
		send(&runner.Segment{Path: "/root/t", Version: 1, Offset: 5, Data: []byte("late")})
	}})
	for range 2 { // the next run of the session has as many tries
		in := b.claim(t, ready, "hello")
		for try := 1; try < transcript.MaxGaps; try++ {
			_, err := b.turn(in)
			require.Error(t, err)
			require.False(t, activities.IsFinal(err), "try %d: %v", try, err)
		}
		_, err := b.turn(in)
		requireType(t, activities.Refused, err)
		require.ErrorContains(t, err, "left 5 gaps in transcripts")
		require.ErrorContains(t, err, "transcript /root/t has 0 bytes, the segment starts at 5")
		_, err = do(b, attempt{}, b.control.SettleRun, activities.SettleRequest{RunID: in.RunID, Outcome: session.OutcomeFailed, Reason: activities.ReasonOf(err)})
		require.NoError(t, err)
	}
}

// TestRunContinuesAfterGapInTranscript lets the next attempt report the segments after the
// stored end.
func TestRunContinuesAfterGapInTranscript(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	ready := b.create(t)
	var tries atomic.Int64
	b.forge(forged{flushes: true, attach: func(send func(runner.Message), run string) {
		if tries.Add(1) == 1 {
			send(&runner.Segment{Path: "/root/t", Version: 1, Offset: 5, Data: []byte("late")})
			return
		}
		send(&runner.Segment{Path: "/root/t", Version: 1, Data: []byte("from the start")})
		send(frameOf(0, completedLine, run))
	}})
	in := b.claim(t, ready, "hello")
	_, err := b.turn(in)
	require.Error(t, err)
	result, err := b.turn(in)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, result.Outcome)
	positions, err := b.db.TranscriptPositions(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, []transcript.Position{{Path: "/root/t", Version: 1, Size: 14}}, positions)
}

// TestTurnEndStoresLastTranscriptSegments lets the runner send the last segments when it
// flushes. Segments that are refused do not change the outcome.
func TestTurnEndStoresLastTranscriptSegments(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rest []*runner.Segment
		size int64
	}{
		"whole":    {rest: []*runner.Segment{{Path: "/root/t", Version: 1, Data: []byte("first ")}, {Path: "/root/t", Version: 1, Offset: 6, Data: []byte("last")}}, size: 10},
		"large":    {rest: []*runner.Segment{{Path: "/root/t", Version: 1, Data: make([]byte, 300<<10)}, {Path: "/root/t", Version: 1, Offset: 300 << 10, Data: []byte("last")}}, size: 300<<10 + 4},
		"a gap":    {rest: []*runner.Segment{{Path: "/root/t", Version: 1, Offset: 5, Data: []byte("late")}}},
		"no place": {rest: []*runner.Segment{{Path: "/root/t", Version: 1, Offset: -1, Data: []byte("before")}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupMemory(t)
			ready := b.create(t)
			b.forge(forged{flushes: true, rest: test.rest, attach: func(send func(runner.Message), run string) {
				send(frameOf(0, completedLine, run))
			}})
			result, err := b.turn(b.claim(t, ready, "hello"))
			require.NoError(t, err)
			require.Equal(t, session.OutcomeCompleted, result.Outcome)
			positions, err := b.db.TranscriptPositions(b.ctx, b.id)
			require.NoError(t, err)
			if test.size == 0 {
				require.Empty(t, positions)
				return
			}
			require.Equal(t, []transcript.Position{{Path: "/root/t", Version: 1, Size: test.size}}, positions)
		})
	}
}

// TestSessionHibernatesDespiteTranscriptGapsInSeals is a regression test: a seal that failed
// because of a gap was repeated without end.
func TestSessionHibernatesDespiteTranscriptGapsInSeals(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	ready := b.create(t)
	b.forge(forged{seal: &manifest.Manifest{}, segments: []*runner.Segment{
		{Path: "/root/t", Version: 1, Offset: 5, Data: []byte("late")}, {Path: "/root/other", Version: 1, Data: []byte("whole")},
	}})
	b.awake(t)
	for range transcript.MaxGaps - 1 {
		_, err := b.save(ready)
		require.ErrorContains(t, err, "the segment starts at 5")
	}
	_, err := b.save(ready)
	require.NoError(t, err)
	positions, err := b.db.TranscriptPositions(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, []transcript.Position{{Path: "/root/other", Version: 1, Size: 5}}, positions)
}

// TestEventsOfFilesCountAsEventsOfTurn lets a runner report changes in two attempts at a run that
// has room for a few more events. Events of files used to be unbounded.
func TestEventsOfFilesCountAsEventsOfTurn(t *testing.T) {
	t.Parallel()
	const room = 2000
	for name, limits := range map[string]conversation.Limiter{
		"bytes":  {Bytes: conversation.MaxTurnBytes - room},
		"events": {Events: conversation.MaxTurnEvents - room/100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupMemory(t)
			ready := b.create(t)
			in := b.claim(t, ready, "hello")
			state, err := json.Marshal(map[string]any{"limits": limits})
			require.NoError(t, err)
			b.sql(t, "UPDATE runs SET translator = $2 WHERE id = $1", in.RunID, state)
			var tries atomic.Int64
			stored := make(chan struct{})
			const each = 100
			b.forge(forged{flushes: true, attach: func(send func(runner.Message), run string) {
				try := tries.Add(1)
				send(&runner.FilesBegun{Lineage: "forged"})
				for i := range int64(each) {
					change := &runner.FileChanged{}
					change.Seq, change.Path, change.Kind = (try-1)*each+i+1, fmt.Sprintf("file-%d-%d", try, i), workspacefile.Created
					change.Data = []byte("x")
					send(change)
				}
				if try == 1 { // the attempt fails, without a frame
					<-stored
					send(&runner.Segment{Path: "/root/t", Version: 1, Offset: 5, Data: []byte("late")})
					return
				}
				send(frameOf(0, completedLine, run))
			}})
			first := b.begin(t, in)
			b.await(t, in.RunID, "error")
			close(stored)
			_, err = first.wait(t)
			require.Error(t, err)
			result, err := b.turn(in)
			require.NoError(t, err)
			require.Equal(t, session.OutcomeCompleted, result.Outcome)
			events := b.of(t, in.RunID, "file")
			require.NotEmpty(t, events)
			require.LessOrEqual(t, len(events), 60)
			require.Equal(t, 1, strings.Count(b.logged(t, in.RunID), conversation.CodeTurnTruncated))
			files, _, err := b.db.FileList(b.ctx, b.id, "file-2", 200, "")
			require.NoError(t, err)
			require.Len(t, files, each, "the files themselves are stored")
		})
	}
}

// TestWorkspaceIsReportedAsTooLargeOnceInTurn repeats the report in two attempts, with new
// lineages. Each report used to be an event.
func TestWorkspaceIsReportedAsTooLargeOnceInTurn(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	ready := b.create(t)
	in := b.claim(t, ready, "hello")
	var tries atomic.Int64
	stored := make(chan struct{})
	b.forge(forged{flushes: true, attach: func(send func(runner.Message), run string) {
		try := tries.Add(1)
		for i := range 20 {
			send(&runner.FilesBegun{Lineage: fmt.Sprintf("forged-%d-%d", try, i)})
			send(&runner.FilesBounded{Seq: 1})
		}
		if try == 1 {
			<-stored
			send(&runner.Segment{Path: "/root/t", Version: 1, Offset: 5, Data: []byte("late")})
			return
		}
		send(frameOf(0, completedLine, run))
	}})
	first := b.begin(t, in)
	b.await(t, in.RunID, "error")
	close(stored)
	_, err := first.wait(t)
	require.Error(t, err)
	_, err = b.turn(in)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(b.logged(t, in.RunID), "workspace_too_large"))
}

// TestRunReportedAsInterruptedEndsAfterPause checks the pause before the end of the run: if the
// prompt is to run again, the next run may end in the same way.
func TestRunReportedAsInterruptedEndsAfterPause(t *testing.T) {
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

// TestForgedSealIsBounded checks the size of the report of a restore, which is stored as an event
// and in the workflow's history. The history refuses many megabytes, so the session could not wake.
func TestForgedSealIsBounded(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	ready := b.create(t)
	sealed := manifest.Manifest{Lost: []string{strings.Repeat("lost ", 1<<18)}, Tree: &manifest.Tree{Digest: strings.Repeat("d", 1<<20)}}
	var missing []string
	for i := range 50_000 {
		path := fmt.Sprintf("/root/%0100d", i)
		sealed.AgentFiles = append(sealed.AgentFiles, manifest.File{Path: path, Size: 1})
		missing = append(missing, path)
	}
	b.forge(forged{seal: &sealed, verify: &runner.Verification{Missing: missing, Mismatched: []string{}}})
	b.awake(t)
	_, err := b.save(ready)
	require.NoError(t, err)
	head := b.head(t).Manifest
	require.Len(t, head.AgentFiles, transcript.MaxFiles)
	require.Empty(t, head.Lost)
	require.Len(t, head.Tree.Digest, 1024)
	b.terminate(t, ready)
	restored, err := b.restore(2)
	require.NoError(t, err)
	require.Equal(t, receipt.Partial, restored.Receipt.Kind)
	require.Len(t, restored.Receipt.Missing, receipt.MaxItems+1)
	require.Equal(t, fmt.Sprintf("%d more", 50_000-receipt.MaxItems), restored.Receipt.Missing[receipt.MaxItems])
}
