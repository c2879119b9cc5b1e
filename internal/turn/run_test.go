package turn_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/demo"
	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/sandbox/memsandbox"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/turn"
)

// waitLimit bounds every wait of a test.
const waitLimit = 2 * time.Minute

// stage is a session with a prompt in a database, a sandbox in memory, and an executor of turns,
// without Temporal.
type stage struct {
	db       *postgres.DB
	executor *turn.Executor
	in       turn.Request
	attaches atomic.Int64 // execs of links
	links    atomic.Int64 // of these, the running ones
	hellos   atomic.Int64
	puts     sync.Map // content of the written files, by path
	input    atomic.Value
	dispatch int64
	answers  answers
	launches sync.Map // launches of the agent, by run
	steers   steers
	changes  *changes
	// attachments are those of the prompt.
	attachments []attachment.Attachment
}

// script is the output of the program that replaces the runner, after it has received the prompt.
type script struct {
	frames      []string // the lines of the agent
	lost        bool     // the runner was interrupted while it had the run
	masks       turn.Masks
	agent       agent.Adapter // default: the demo agent
	attachments []attachment.Attachment
	waiting     []int64       // the frames of calls that the runner reports as waiting
	hello       func(n int64) // called with the number of the hello that has arrived, before it is answered
	started     func()        // called when the prompt has arrived, before the first frame
	noSteers    bool          // the runner's release does not support prompts for running turns
	windowed    bool          // the runner pauses its agent when the window is full
	steered     []string      // the lines of the agent that follow a prompt for the running turn; STEER is replaced by its uuid, and PROMPT by its id
}

func setup(t *testing.T, s script) *stage {
	t.Helper()
	st := &stage{attachments: s.attachments, changes: &changes{watched: map[string]chan struct{}{}}}
	st.steers.frames = s.frames
	if s.agent == nil {
		s.agent = demo.New()
	}
	if s.masks == nil {
		s.masks = none{}
	}
	drv := memsandbox.New()
	t.Cleanup(func() { require.NoError(t, drv.Close()) })
	drv.Handle("overwinter-runner", func(ctx context.Context, p *memsandbox.Proc) int {
		switch p.Args[1] {
		case "attach":
			return st.attach(ctx, p, s)
		case "put":
			return st.put(p)
		}
		<-ctx.Done()
		return 0
	})
	st.db = postgrestest.New(t)
	appender := eventlog.NewAppender(st.db, eventlog.AppenderOptions{})
	appender.Start()
	t.Cleanup(func() { appender.Stop(context.Background()) })
	provider := sandbox.NewProvider(drv, sandbox.Options{Installation: "0123456789abcdef", PollInterval: 200 * time.Millisecond})
	links := turn.NewLinks()
	t.Cleanup(links.Close)
	st.executor = turn.New(turn.Config{
		Store: st.db, Log: appender, Agents: agent.NewRegistry(s.agent), Sandbox: provider, Secrets: none{}, Masks: s.masks, Links: links,
		Token:        func(context.Context, string, int64) (string, error) { return "a token", nil },
		FlushTimeout: waitLimit, Changes: st.changes, Logger: slog.New(slog.DiscardHandler),
	})
	st.claim(t, provider)
	return st
}

// none has no secrets.
type none struct{}

func (none) Secrets(context.Context, []string) (map[string]secret.Stored, error) { return nil, nil }

func (none) Masker(context.Context) (*secret.Masker, error) { return nil, nil }

// countedMasks has no secrets and counts the reads.
type countedMasks struct{ read atomic.Int64 }

func (m *countedMasks) Masker(context.Context) (*secret.Masker, error) {
	m.read.Add(1)
	return nil, nil
}

// TestSecretsToMaskAreReadOnceForPrompt checks this because the prompt waits for each read, even if
// there are no secrets.
func TestSecretsToMaskAreReadOnceForPrompt(t *testing.T) {
	t.Parallel()
	var masks countedMasks
	var before atomic.Int64
	st := setup(t, script{frames: []string{endsTurn}, masks: &masks, started: func() { before.Store(masks.read.Load()) }})
	_, err := st.executor.Run(t.Context(), st.take(t), &progress{})
	require.NoError(t, err)
	require.EqualValues(t, 1, before.Load())
}

// masks masks the secrets of its masker.
type masks struct{ masker *secret.Masker }

func (m masks) Masker(context.Context) (*secret.Masker, error) { return m.masker, nil }

// claim creates a session with a sandbox and a prompt, and claims the prompt for a run.
func (st *stage) claim(t *testing.T, provider *sandbox.Provider) {
	t.Helper()
	ctx := t.Context()
	s, _, err := st.db.SessionCreate(ctx, session.Session{
		ID: session.NewID(session.SessionPrefix), Agent: demo.Name, Lazy: true,
	}, nil, session.Idempotency{})
	require.NoError(t, err)
	require.NoError(t, st.db.GenerationReserve(ctx, s.ID, 1, ""))
	sb, _, err := provider.Create(ctx, sandbox.Spec{
		Session: s.ID, Generation: 1, Image: "base", Timeout: time.Hour, Command: []string{"overwinter-runner", "serve"},
	})
	require.NoError(t, err)
	require.NoError(t, st.db.SandboxRecord(ctx, s.ID, 1, sb.ID(), session.SandboxReady, time.Now().Add(time.Hour)))
	require.NoError(t, st.db.TransitionRecord(ctx, session.Transition{
		SessionID: s.ID, No: s.TransitionNo + 1, From: s.Status, To: session.Running, Event: session.EventReady, Generation: 1, At: time.Now(),
	}))
	p, _, _, err := st.db.PromptSubmit(ctx, session.Prompt{ID: session.NewID(session.PromptPrefix), SessionID: s.ID, Content: "hello", Attachments: st.attachments})
	require.NoError(t, err)
	run := session.NewID(session.RunPrefix)
	verdict, err := st.db.RunBegin(ctx, s.ID, p.ID, run, 1)
	require.NoError(t, err)
	require.True(t, verdict.Granted, "verdict: %+v", verdict)
	st.in = turn.Request{SessionID: s.ID, RunID: run, Generation: 1, SandboxID: sb.ID()}
}

// take attaches a new attempt to the run.
func (st *stage) take(t *testing.T) turn.Request {
	t.Helper()
	in := st.in
	in.Token = turn.NewToken()
	st.dispatch++
	var err error
	in.Start, err = st.db.RunAttach(t.Context(), in.RunID, in.Token, run.Dispatch{No: st.dispatch, Attempt: 1}, nil)
	require.NoError(t, err)
	return in
}

// attach acts as the runner on one link until it is closed.
func (st *stage) attach(ctx context.Context, p *memsandbox.Proc, s script) int {
	st.attaches.Add(1)
	st.links.Add(1)
	defer st.links.Add(-1)
	r := bufio.NewReader(p.Stdin)
	send := func(m runner.Message) { _ = runner.WriteMessage(p.Stdout, m) } // the worker may have disconnected
	run, printed, window := "", int64(0), int64(math.MaxInt64)
	print := func(from int64) {
		frames := st.steers.lines()
		for i := from; i < min(int64(len(frames)), window); i++ {
			printed = i + 1
			line := strings.ReplaceAll(frames[i], "RUN", run)
			stream := runner.Stdout
			if call, ok := strings.CutPrefix(line, "CALL"); ok {
				stream, line = runner.Call, call
			}
			send(&runner.Frame{No: i, Stream: stream, At: time.Now(), Data: []byte(line)})
		}
	}
	for ctx.Err() == nil {
		m, err := runner.ReadMessage(r)
		if err != nil {
			return runner.ExitFailed
		}
		switch m := m.(type) {
		case *runner.Hello:
			if n := st.hellos.Add(1); s.hello != nil {
				s.hello(n)
			}
			run = m.Run
			if s.windowed {
				window = m.From + m.Window
			}
			switch {
			case s.lost:
				send(&runner.Welcome{Version: runner.ProtocolVersion, Delivery: runner.Delivered, LastFrame: int64(len(st.steers.lines())) - 1})
				print(m.From)
			case m.From > 0:
				send(&runner.Welcome{
					Version: runner.ProtocolVersion, Delivery: runner.Delivered, LastFrame: int64(len(st.steers.lines())) - 1, Open: true, Agent: true,
					Calls: s.waiting, Steers: !s.noSteers,
				})
				print(m.From)
			default:
				send(&runner.Welcome{Version: runner.ProtocolVersion, Delivery: runner.NotStarted, LastFrame: -1, Open: true, Agent: true, Steers: !s.noSteers, Window: s.windowed})
			}
		case *runner.Start:
			st.input.Store(string(m.Input))
			st.launches.Store(run, m.Launch)
			if s.started != nil {
				s.started()
			}
			print(0)
		case *runner.Steer:
			if from, given := st.steers.give(m, s.steered); given {
				print(from)
			}
		case *runner.Taken:
			window = m.Next + m.Window
			print(printed)
		case *runner.CallAnswer:
			st.answers.add(m.Frame, string(m.Answer))
		case *runner.Flush:
			send(&runner.Flushed{ID: m.ID})
		case *runner.Detach:
			send(&runner.Detached{})
		default:
		}
	}
	return runner.ExitOK
}

// put implements the runner's put command.
func (st *stage) put(p *memsandbox.Proc) int {
	r := bufio.NewReader(p.Stdin)
	name := ""
	for {
		m, err := runner.ReadMessage(r)
		if err != nil {
			return runner.ExitFailed
		}
		switch m := m.(type) {
		case *runner.File:
			name = m.Path
			st.puts.Store(name, "")
		case *runner.Data:
			have, _ := st.puts.Load(name)
			st.puts.Store(name, have.(string)+string(m.Bytes))
		case *runner.End:
			return runner.ExitOK
		default:
		}
	}
}

// progress counts the steps of an attempt.
type progress struct {
	made, waits int
	waiting     bool
}

func (p *progress) Made()           { p.made, p.waiting = p.made+1, false }
func (p *progress) Waiting()        { p.waits, p.waiting = p.waits+1, true }
func (p *progress) IsWaiting() bool { return p.waiting }

func (st *stage) events(t *testing.T, kind string) []eventlog.Event {
	t.Helper()
	page, err := st.db.EventsPage(t.Context(), st.in.SessionID, 0, 10_000)
	require.NoError(t, err)
	return slices.DeleteFunc(page, func(e eventlog.Event) bool { return e.RunID != st.in.RunID || e.Type != kind })
}

// endsTurn is the line of the demo agent that ends a turn.
const endsTurn = `{"type":"result","runId":"RUN","outcome":"completed"}`

// says returns a line of the demo agent.
func says(text string) string {
	return fmt.Sprintf(`{"type":"assistant","uuid":%q,"content":%q}`, "block-"+text, text)
}

// TestTurnRunsWithoutTemporal checks that the events are committed before the end is reported, and
// that the caller only has to record the outcome.
func TestTurnRunsWithoutTemporal(t *testing.T) {
	t.Parallel()
	st := setup(t, script{frames: []string{says("one"), says("two"), endsTurn}})
	var p progress
	result, err := st.executor.Run(t.Context(), st.take(t), &p)
	require.NoError(t, err)
	require.NotNil(t, result.End)
	require.Equal(t, session.OutcomeCompleted, result.End.Outcome)
	require.True(t, result.MayHaveDelivered)
	require.Positive(t, p.made)
	require.Positive(t, p.waits)
	run, err := st.db.RunGet(t.Context(), st.in.RunID)
	require.NoError(t, err)
	require.EqualValues(t, 2, run.LastFrame)
	require.Empty(t, run.Outcome, "that is the caller's")
	require.Len(t, st.events(t, "block_complete"), 2)

	// Another attempt finds the end, and requests no frame again.
	result, err = st.executor.Run(t.Context(), st.take(t), &p)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, result.End.Outcome)
	require.Len(t, st.events(t, "block_complete"), 2)
	require.EqualValues(t, 1, st.attaches.Load(), "the link of the first is reused")
}

// TestTurnOfMoreLinesThanItsWindowIsFollowedToItsEnd checks that the runner is notified of handled
// frames and lets its agent continue.
func TestTurnOfMoreLinesThanItsWindowIsFollowedToItsEnd(t *testing.T) {
	t.Parallel()
	const lines = 3000
	frames := make([]string, 0, lines+1)
	for i := range lines {
		frames = append(frames, fmt.Sprintf(`{"type":"assistant","uuid":"block-%d","content":"line"}`, i))
	}
	st := setup(t, script{frames: append(frames, endsTurn), windowed: true})
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	result, err := st.executor.Run(ctx, st.take(t), &progress{})
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, result.End.Outcome)
	run, err := st.db.RunGet(t.Context(), st.in.RunID)
	require.NoError(t, err)
	require.EqualValues(t, lines, run.LastFrame)
}

// TestAttemptWithoutTokenWritesNothing lets a newer attempt take the run before the first commit.
func TestAttemptWithoutTokenWritesNothing(t *testing.T) {
	t.Parallel()
	st := setup(t, script{frames: []string{says("one"), endsTurn}})
	older := st.take(t)
	st.take(t)
	result, err := st.executor.Run(t.Context(), older, &progress{})
	require.True(t, turn.TakenOver(err), "error: %v", err)
	require.Nil(t, result.End)
	require.Empty(t, st.events(t, "block_complete"))
}

// TestTurnOfInterruptedRunnerIsUnknown checks that the frames that the runner still has are
// committed first.
func TestTurnOfInterruptedRunnerIsUnknown(t *testing.T) {
	t.Parallel()
	st := setup(t, script{frames: []string{says("one")}, lost: true})
	result, err := st.executor.Run(t.Context(), st.take(t), &progress{})
	var final *turn.Error
	require.ErrorAs(t, err, &final)
	require.Equal(t, turn.DeliveryUnknown, final.Kind)
	require.Nil(t, result.End)
	require.Len(t, st.events(t, "block_complete"), 1)
}

// TestCancelledAttemptReportsPossibleDelivery cancels an attempt while the agent is silent, and
// before the runner is reached.
func TestCancelledAttemptReportsPossibleDelivery(t *testing.T) {
	t.Parallel()
	st := setup(t, script{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in := st.take(t)
	result, err := st.executor.Run(ctx, in, &progress{})
	require.Error(t, err)
	if result != nil { // nil if the stored state could not be read
		require.False(t, result.MayHaveDelivered)
	}
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	result, err = st.executor.Run(ctx, in, &cancelling{cancel: cancel})
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, result.MayHaveDelivered)
}

// cancelling cancels an attempt when it waits for the agent.
type cancelling struct {
	progress
	cancel context.CancelFunc
}

func (c *cancelling) Waiting() {
	c.progress.Waiting()
	c.cancel()
}

// TestSettledRunHasNoOpenBlocks settles a run whose worker was lost and whose stored state lists
// open blocks.
func TestSettledRunHasNoOpenBlocks(t *testing.T) {
	t.Parallel()
	st := setup(t, script{frames: []string{`{"type":"tool_use","uuid":"call1","name":"run","input":{"x":"y"}}`}, lost: true})
	_, err := st.executor.Run(t.Context(), st.take(t), &progress{})
	require.Error(t, err)
	require.Len(t, st.events(t, "block_start"), 1)
	require.Empty(t, st.events(t, "block_complete"))
	ending := run.Ending{RunID: st.in.RunID, Outcome: session.OutcomeUnknown, Reason: session.ReasonSandboxLost}
	for range 2 {
		require.NoError(t, st.executor.Settle(t.Context(), ending))
		require.Len(t, st.events(t, "block_complete"), 1)
	}
	run, err := st.db.RunGet(t.Context(), st.in.RunID)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeUnknown, run.Outcome)
}

// looks returns a line of the demo agent in which a tool returns an image.
func looks(image []byte) string {
	return fmt.Sprintf(`{"type":"tool_result","uuid":"res","toolUseId":"call","output":"seen","images":[%q]}`, base64.StdEncoding.EncodeToString(image))
}

// TestImagesOfResultsAreStored checks that images are stored outside the events, before a reader
// can find their names.
func TestImagesOfResultsAreStored(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	image := []byte("\x89PNG\r\n\x1a\nof the first")
	secretImage := []byte("\x89PNG\r\n\x1a\nwith Xylophone7Quartz")
	st := setup(t, script{
		frames: []string{looks(image), looks(image), looks(secretImage), looks([]byte("<svg>")), endsTurn},
		masks:  masks{secret.NewMasker([]secret.Named{{Name: "KEY", Value: secret.NewValue("Xylophone7Quartz")}})},
	})
	_, err := st.executor.Run(ctx, st.take(t), &progress{})
	require.NoError(t, err)
	var got []conversation.Image
	for _, e := range st.events(t, "block_complete") {
		require.NotContains(t, string(e.Data), base64.StdEncoding.EncodeToString(image))
		var d conversation.BlockComplete
		require.NoError(t, json.Unmarshal(e.Data, &d))
		got = append(got, d.Block.Images...)
	}
	require.Len(t, got, 3)
	require.False(t, got[0].Omitted)
	require.Equal(t, got[0], got[1])
	require.True(t, got[2].Omitted, "the value of a secret is in it")
	a, err := st.db.AttachmentGet(ctx, st.in.SessionID, got[0].ID)
	require.NoError(t, err)
	require.Equal(t, image, a.Data)
	require.Equal(t, "image/png", a.MediaType)
	_, err = st.db.AttachmentGet(ctx, st.in.SessionID, got[2].ID)
	require.Equal(t, failure.NoAttachment, failure.CodeOf(err))
}

// TestAttachmentsArePlacedBeforePromptIsDelivered checks that the agent receives the paths of the
// attachments, and that a second attempt, which finds that the runner has the prompt, places no
// files.
func TestAttachmentsArePlacedBeforePromptIsDelivered(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", runner.MaxSegment+1)
	file := func(name, text string) attachment.Attachment {
		return attachment.Attachment{
			Info: attachment.Info{ID: conversation.AttachmentID([]byte(text), name), Name: name, MediaType: "text/plain", Bytes: int64(len(text))},
			Data: []byte(text),
		}
	}
	st := setup(t, script{frames: []string{endsTurn}, attachments: []attachment.Attachment{file("notes 1.txt", large), file("b", "two")}})
	_, err := st.executor.Run(t.Context(), st.take(t), &progress{})
	require.NoError(t, err)
	prompt := st.take(t).Start.Prompt
	dir := "/workspace/.overwinter/attachments/"
	for path, want := range map[string]string{dir + prompt.ID + "/notes 1.txt": large, dir + prompt.ID + "/b": "two", dir + ".gitignore": "*\n"} {
		got, ok := st.puts.Load(path)
		require.True(t, ok, path)
		require.Equal(t, want, got, path)
	}
	require.Contains(t, st.input.Load(), `- .overwinter/attachments/`+prompt.ID+`/notes 1.txt (text/plain, 1048577 bytes)`)
	require.NotContains(t, st.input.Load(), `"images"`)
	st.puts.Clear()
	_, err = st.executor.Run(t.Context(), st.take(t), &progress{})
	require.NoError(t, err)
	st.puts.Range(func(path, _ any) bool {
		t.Errorf("%s was placed again", path)
		return true
	})
}
