package why_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/breaker"
	"github.com/overwinter-dev/overwinter/internal/problem"
	"github.com/overwinter-dev/overwinter/internal/purge"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/why"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// step is a transition at a second.
func step(no int64, seconds int, from session.State, event session.Event, reason string) why.Step {
	to, err := session.Next(from, event)
	if err != nil {
		panic(err)
	}
	return why.Step{Transition: session.Transition{No: no, From: from, To: to, Event: event, Reason: reason, Generation: 1, At: at(seconds)}}
}

// facts returns the facts of a session that has run and hibernated for a reason.
func facts(slept string) why.Facts {
	return why.Facts{
		Session: session.Session{ID: "ses_1", Status: session.Hibernated, StatusReason: slept, CreatedAt: start, TransitionNo: 3, Generation: 1},
		Now:     at(100),
		Transitions: []why.Step{
			step(1, 2, session.Initializing, session.EventReady, session.ReasonPrompt),
			step(2, 50, session.Running, session.EventHibernate, slept),
			step(3, 52, session.Hibernating, session.EventSaved, slept),
		},
		Sandboxes: []why.Sandbox{{Generation: 1, ReservedAt: at(1), ReadyAt: at(2), EndedAt: at(51)}},
	}
}

// starting returns the facts of a session whose first sandbox waits because of a circuit breaker.
func starting() why.Facts {
	return why.Facts{
		Session: session.Session{
			ID: "ses_1", Agent: "demo", Status: session.Initializing, CreatedAt: start,
			StartWait: &breaker.Wait{Since: at(20), Until: at(105), Failures: 5, Reason: "no capacity"},
		},
		Now: at(100),
	}
}

func codesOf(e why.Explanation) (codes []why.Code) {
	for _, c := range e.Causes {
		codes = append(codes, c.Code)
	}
	return codes
}

func failed(seconds int, activity string, kind why.FailureKind, errorType, message string) why.History {
	return why.History{Open: true, Events: []why.Event{
		{At: at(seconds), Kind: why.AttemptFailed, Activity: activity, Failure: why.Failure{Kind: kind, Type: errorType, Message: message}},
	}}
}

// TestEveryFaultIsExplained covers each fault of the durability tests, as it appears in the rows and
// the history.
func TestEveryFaultIsExplained(t *testing.T) {
	t.Parallel()
	prompt := func(status session.PromptStatus, reason string) why.Facts {
		f := facts(session.ReasonIdle)
		f.Session.Status, f.Transitions = session.Running, f.Transitions[:1]
		f.Prompt = &session.Prompt{ID: "p", Status: status, Reason: reason, CreatedAt: at(1), StartedAt: at(3), EndedAt: at(40), RunID: "run_1"}
		f.Runs = []why.Run{{ID: "run_1", PromptID: "p", Generation: 1, Attempt: 1, Outcome: session.Outcome(status), Reason: reason, StartedAt: at(3), EndedAt: at(40)}}
		if !status.Final() {
			f.Prompt.EndedAt, f.Runs[0].EndedAt, f.Runs[0].Outcome = time.Time{}, time.Time{}, ""
		}
		return f
	}
	queued := func(change func(*why.Facts)) why.Facts {
		f := prompt(session.PromptQueued, "")
		f.Runs = nil
		change(&f)
		return f
	}
	failing := func(no int64, reason string) why.Facts {
		f := facts(session.ReasonIdle)
		f.Session.Status, f.Session.StatusReason, f.Session.TransitionNo = session.Error, reason, no
		f.Transitions = append(f.Transitions[:1], step(2, 60, session.Running, session.EventFail, reason))
		return f
	}
	restored := func(kind receipt.Kind, change func(*why.Facts)) why.Facts {
		f := facts(session.ReasonLost)
		f.Session.Status, f.Session.Generation, f.Session.TransitionNo = session.Running, 2, 5
		wake, ready := step(4, 60, session.Hibernated, session.EventWake, session.ReasonRequested), step(5, 61, session.Restoring, session.EventReady, session.ReasonRequested)
		wake.CommandID, ready.Generation, ready.Receipt = "cmd_1", 2, &receipt.Receipt{Kind: kind, Missing: []string{"workspace"}}
		f.Transitions = append(f.Transitions, wake, ready)
		f.Commands = []session.Command{{ID: "cmd_1", Kind: session.CommandWake, Status: session.CommandApplied, CreatedAt: at(59), EndedAt: at(61), RequestID: "req"}}
		change(&f)
		return f
	}
	waited := func() why.Facts {
		f := prompt(session.PromptCompleted, "")
		f.Prompt.StartedAt, f.Runs[0].StartedAt = at(31), at(32)
		return f
	}
	retrying := func(runID string) why.Facts {
		f := prompt(session.PromptProcessing, "")
		f.Retry = &why.Retry{RunID: runID, At: at(35), Message: "connection refused"}
		return f
	}
	away := func(f why.Facts, code why.Code, since, until int) why.Facts {
		f.Outages = []why.Outage{{Code: code, Since: at(since), Until: at(until)}}
		return f
	}
	slowAfter := func(h why.History) why.History {
		h.Events = append(h.Events, why.Event{At: at(30), Kind: why.StepWasSlow, Activity: "RestoreSandbox", Took: 15 * time.Second})
		return h
	}
	bundled := func(f why.Facts) why.Facts {
		f.Bundles = []why.Bundle{{ID: "b", Generation: 1, HasSnapshot: true, CreatedAt: at(19)}}
		return f
	}
	reported := func(generation int64) why.History {
		return why.History{Open: true, Events: []why.Event{{At: at(20), Kind: why.Signalled, Sandbox: "the provider does not list it any more", Generation: generation}}}
	}
	commanded := func(kind session.CommandKind, reason string) why.Facts {
		f := facts(reason)
		f.Commands = []session.Command{{ID: "cmd_1", Kind: kind, Status: session.CommandApplied, CreatedAt: at(49), EndedAt: at(50)}}
		return f
	}
	withProblem := func(f why.Facts, code string) why.Facts {
		f.Problems = []why.Problem{{At: at(51), Code: code, Message: "since then: the disk is full"}}
		return f
	}
	for name, c := range map[string]struct {
		of      why.Subject
		facts   why.Facts
		history why.History
		code    why.Code   // of the explanation
		also    []why.Code // among its causes
	}{
		"idle":                            {why.Session, facts(session.ReasonIdle), why.History{}, why.Idle, nil},
		"deadline of the sandbox":         {why.Session, facts(session.ReasonLifetime), why.History{}, why.Lifetime, nil},
		"workers drained":                 {why.Session, commanded(session.CommandHibernate, session.ReasonShutdown), why.History{}, why.Shutdown, []why.Code{why.CommandRequested}},
		"sandbox lost":                    {why.Session, facts(session.ReasonLost), why.History{}, why.SandboxLost, nil},
		"hibernate by a client":           {why.Session, commanded(session.CommandHibernate, session.ReasonRequested), why.History{}, why.CommandRequested, nil},
		"sandbox discarded":               {why.Session, commanded(session.CommandDrop, session.ReasonDropped), why.History{}, why.Dropped, []why.Code{why.CommandRequested}},
		"snapshot delayed":                {why.Transition, withProblem(facts(session.ReasonIdle), problem.SavingDelayed), why.History{}, why.SavingDelayed, []why.Code{why.Idle}},
		"snapshot failed":                 {why.Transition, facts(session.ReasonIdle), failed(51, "SaveBundle", why.Application, "Error", "disk"), why.SnapshotFailed, nil},
		"limit of the sandbox":            {why.Transition, withProblem(facts(session.ReasonLost), problem.SandboxLimit), why.History{}, why.SandboxLimit, []why.Code{why.SandboxLost}},
		"sleeps with a question":          {why.Session, facts(session.ReasonQuestion), why.History{}, why.TurnParked, nil},
		"refused":                         {why.Session, failing(2, "the image does not exist"), why.History{}, why.Refused, []why.Code{why.SessionInError}},
		"purge":                           {why.Session, func() why.Facts { f := facts(""); f.Session.Purge = &purge.Purge{}; return f }(), why.History{}, why.SessionErasing, nil},
		"worker killed in a turn":         {why.Prompt, prompt(session.PromptCompleted, ""), failed(20, "RunTurn", why.HeartbeatTimeout, "", ""), why.WorkerLost, nil},
		"worker stopped in a turn":        {why.Prompt, prompt(session.PromptCompleted, ""), failed(20, "RunTurn", why.Application, "HandOver", ""), why.WorkerStopped, nil},
		"runner unreachable":              {why.Prompt, prompt(session.PromptProcessing, ""), failed(20, "RunTurn", why.Application, "Error", "dial"), why.RunnerUnreachable, nil},
		"Postgres was unavailable":        {why.Prompt, away(prompt(session.PromptCompleted, ""), why.DatabaseUnavailable, 10, 20), why.History{}, why.DatabaseUnavailable, nil},
		"Temporal was unavailable":        {why.Prompt, away(waited(), why.TemporalUnavailable, 0, 29), why.History{}, why.TemporalUnavailable, []why.Code{why.PromptQueued}},
		"Temporal was unavailable before": {why.Prompt, away(waited(), why.TemporalUnavailable, -9, 0), why.History{}, why.PromptCompleted, nil},
		"Postgres away":                   {why.Prompt, prompt(session.PromptProcessing, ""), failed(20, "RunTurn", why.Application, "Error", "the database is not available"), why.DatabaseUnavailable, nil},
		"row locked":                      {why.Prompt, prompt(session.PromptProcessing, ""), failed(20, "RestoreSandbox", why.Application, "Error", "session ses_1 is locked by another transaction; try again later: the session is locked"), why.SessionLocked, nil},
		"Temporal away":                   {why.Prompt, prompt(session.PromptQueued, ""), why.History{Err: "temporal does not answer"}, why.TemporalUnavailable, nil},
		"starts of others fail":           {why.Session, starting(), failed(30, "CreateSandbox", why.Application, "Error", "unavailable"), why.BreakerOpen, []why.Code{why.SessionStarting, why.ProviderUnavailable}},
		"provider away":                   {why.Transition, failing(2, "x"), failed(30, "CreateSandbox", why.Application, "Error", "unavailable"), why.ProviderUnavailable, []why.Code{why.SessionInError}},
		"agent crashed":                   {why.Prompt, prompt(session.PromptFailed, session.ReasonAgentCrashed), why.History{}, why.AgentCrashed, nil},
		"quarantined":                     {why.Prompt, prompt(session.PromptFailed, session.ReasonQuarantined), why.History{}, why.Quarantined, nil},
		"sandbox lost in a turn":          {why.Prompt, prompt(session.PromptUnknown, session.ReasonSandboxLost), why.History{}, why.SandboxLost, nil},
		"aborted":                         {why.Prompt, prompt(session.PromptCancelled, session.ReasonAborted), why.History{}, why.Aborted, nil},
		"steered":                         {why.Prompt, prompt(session.PromptCancelled, session.ReasonSteered), why.History{}, why.Steered, nil},
		"collected":                       {why.Prompt, queued(func(f *why.Facts) { f.Prompt.CollectUntil = f.Now.Add(time.Second) }), why.History{}, why.Collecting, nil},
		"joined":                          {why.Prompt, queued(func(f *why.Facts) { f.Prompt.JoinedTo = "q" }), why.History{}, why.JoinedTo, nil},
		"ended with the turn":             {why.Prompt, prompt(session.PromptCompleted, session.ReasonJoined), why.History{}, why.JoinedTo, nil},
		"ended with another":              {why.Prompt, prompt(session.PromptCompleted, session.ReasonCollected), why.History{}, why.JoinedTo, nil},
		"stopped in a turn":               {why.Prompt, prompt(session.PromptCancelled, session.ReasonShutdown), why.History{}, why.Shutdown, nil},
		"withdrawn":                       {why.Prompt, prompt(session.PromptCancelled, session.ReasonWithdrawn), why.History{}, why.Withdrawn, nil},
		"queue held":                      {why.Prompt, queued(func(f *why.Facts) { f.Session.Queue.Hold.Since = at(4) }), why.History{}, why.QueueHeld, nil},
		"another turn":                    {why.Prompt, queued(func(f *why.Facts) { f.Processing, f.Ahead = "other", 2 }), why.History{}, why.TurnRunning, []why.Code{why.BehindPrompts}},
		"waits in error":                  {why.Prompt, queued(func(f *why.Facts) { f.Session.Status = session.Error }), why.History{}, why.SessionInError, nil},
		"no worker":                       {why.Prompt, prompt(session.PromptQueued, ""), why.History{Open: true, TaskSince: at(10)}, why.NoWorker, nil},
		"worker silent":                   {why.Prompt, prompt(session.PromptProcessing, ""), why.History{Open: true, Pending: []why.Pending{{Activity: "RunTurn", Started: true, HeartbeatAt: at(60)}}}, why.WorkerSilent, nil},
		"provider frozen":                 {why.Session, starting(), why.History{Open: true, Pending: []why.Pending{{Activity: "CreateSandbox", Started: true, StartedAt: at(40), HeartbeatAt: at(99)}}}, why.BreakerOpen, []why.Code{why.StepSlow}},
		"slow restore":                    {why.Prompt, waited(), why.History{Open: true, Events: []why.Event{{At: at(30), Kind: why.StepWasSlow, Activity: "RestoreSandbox", Took: 25 * time.Second}}}, why.StepSlow, []why.Code{why.PromptQueued}},
		"slow restore that failed":        {why.Prompt, waited(), slowAfter(failed(10, "RestoreSandbox", why.Application, "Error", "unavailable")), why.ProviderUnavailable, []why.Code{why.StepSlow}},
		"long turn":                       {why.Prompt, waited(), why.History{Open: true, Events: []why.Event{{At: at(30), Kind: why.StepWasSlow, Activity: "RunTurn", Took: 25 * time.Second}}}, why.PromptCompleted, nil},
		"end of a lost sandbox":           {why.Prompt, waited(), reported(1), why.SandboxLost, nil},
		"end of a saved sandbox":          {why.Prompt, bundled(waited()), reported(1), why.PromptCompleted, nil},
		"end of the next one":             {why.Prompt, bundled(waited()), reported(2), why.SandboxLost, nil},
		"model does not answer":           {why.Prompt, retrying("run_1"), why.History{}, why.ModelUnavailable, nil},
		"session of such a turn":          {why.Session, retrying("run_1"), why.History{}, why.ModelUnavailable, nil},
		"retry of an earlier turn":        {why.Prompt, retrying("run_2"), why.History{}, why.PromptProcessing, nil},
		"partial restore":                 {why.Receipt, restored(receipt.Partial, func(f *why.Facts) { f.Bundles = []why.Bundle{{ID: "b", Generation: 1, CreatedAt: at(52)}} }), why.History{}, why.SnapshotFailed, []why.Code{why.RestoredPartial, why.CommandRequested}},
		"fresh restore":                   {why.Receipt, restored(receipt.Fresh, func(*why.Facts) {}), why.History{}, why.NothingToRestore, nil},
		"another agent": {why.Receipt, restored(receipt.Partial, func(f *why.Facts) {
			receipt := receipt.Receipt{Kind: receipt.Full}
			receipt.WithoutMemoryOf("demo")
			f.Transitions[len(f.Transitions)-1].Receipt = &receipt
		}), why.History{}, why.HandedOver, []why.Code{why.RestoredPartial, why.CommandRequested}},
		"import": {why.Receipt, restored(receipt.Partial, func(f *why.Facts) {
			f.Bundles = []why.Bundle{{ID: "b", CreatedAt: at(52)}}
			f.Transitions[len(f.Transitions)-1].Receipt = &receipt.Receipt{Kind: receipt.Partial, Missing: []string{"a secret"}, Moved: "another place"}
		}), why.History{}, why.Imported, []why.Code{why.RestoredPartial, why.CommandRequested}},
		"snapshot gone": {why.Receipt, restored(receipt.Fresh, func(f *why.Facts) { f.Bundles = []why.Bundle{{Generation: 1, HasSnapshot: true, SnapshotGone: true}} }), why.History{}, why.SnapshotGone, nil},
		"workflow cancelled": {why.Session, func() why.Facts {
			f := facts("")
			f.Session.Status = session.Terminated
			f.Transitions = append(f.Transitions[:1], step(2, 9, session.Running, session.EventStop, session.ReasonCancelledInTemporal))
			return f
		}(), why.History{}, why.CancelledInTemporal, nil},
		"workflow reset or terminated": {why.Transition, facts(session.ReasonIdle), why.History{Events: []why.Event{{At: at(51), Kind: why.Reset}, {At: at(51), Kind: why.Terminated}}}, why.WorkflowTerminated, []why.Code{why.WorkflowReset}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := why.Explain(c.of, "", c.facts, c.history)
			require.Equal(t, c.code, e.Code, "%+v", e)
			require.NotEmpty(t, e.Summary)
			for _, code := range c.also {
				require.Contains(t, codesOf(e), code)
			}
			for _, code := range codesOf(e) {
				require.Contains(t, why.Codes, code)
			}
			require.LessOrEqual(t, len(e.Causes), why.MaxCauses)
		})
	}
}

func TestQuestionIsExplained(t *testing.T) {
	t.Parallel()
	f := facts(session.ReasonQuestion)
	f.Runs = []why.Run{{ID: "run_1", ParkedAt: at(50)}}
	f.Questions = []why.Asked{{ID: "que_1", RunID: "run_1", Status: "open", CreatedAt: at(5), ExpiresAt: at(500)}}
	e := why.Explain(why.Question, "", f, why.History{})
	require.Equal(t, why.QuestionOpen, e.Causes[0].Code)
	require.Contains(t, codesOf(e), why.TurnParked)
	f.Questions[0].Status, f.Questions[0].Reason, f.Questions[0].ResolvedAt = "expired", "expired", at(500)
	require.Equal(t, why.QuestionExpired, why.Explain(why.Question, "", f, why.History{}).Code)
}

func TestPostgresAndTemporalDisagree(t *testing.T) {
	t.Parallel()
	of := func(change func(*why.Facts, *why.History)) (codes []why.Code) {
		f := facts(session.ReasonIdle)
		f.Session.Status, f.Session.Loaded, f.WorkflowRun, f.Transitions = session.Running, true, "w1", f.Transitions[:1]
		f.Session.TransitionNo = 1
		f.Runs = []why.Run{{ID: "run_1"}}
		h := why.History{Open: true, RunID: "w1", View: &why.View{Status: session.Running, TransitionNo: 1, RunID: "run_1"}}
		change(&f, &h)
		for _, d := range why.Explain(why.Session, "", f, h).Disagreements {
			codes = append(codes, d.Code)
		}
		return codes
	}
	require.Empty(t, of(func(*why.Facts, *why.History) {}))
	require.Equal(t, []why.Code{why.WorkflowNotOpen}, of(func(_ *why.Facts, h *why.History) { h.Open = false }))
	require.Equal(t, []why.Code{why.WorkflowReplaced}, of(func(_ *why.Facts, h *why.History) { h.RunID = "w2" }))
	require.Equal(t, []why.Code{why.StatusDiffers}, of(func(_ *why.Facts, h *why.History) { h.View.Status, h.View.TransitionNo = session.Hibernating, 2 }))
	require.Equal(t, []why.Code{why.TransitionDiffers}, of(func(_ *why.Facts, h *why.History) { h.View.TransitionNo = 2 }))
	require.Equal(t, []why.Code{why.RunDiffers}, of(func(_ *why.Facts, h *why.History) { h.View.RunID = "run_2" }))
	require.Empty(t, of(func(f *why.Facts, h *why.History) { f.Attended, h.View.RunID = true, "run_2" }), "an attendant claims by itself")
	require.Empty(t, of(func(_ *why.Facts, h *why.History) { h.Err, h.Open = "away", false }), "what is not known does not disagree")
}

// TestExplanationIsBounded includes a session in a loop.
func TestExplanationIsBounded(t *testing.T) {
	t.Parallel()
	f := facts(session.ReasonLost)
	f.Transitions = nil
	for no := int64(1); no <= why.MaxTransitions; no += 2 {
		f.Transitions = append(f.Transitions,
			step(no, int(no), session.Running, session.EventFail, strings.Repeat("word ", 1000)), step(no+1, int(no)+1, session.Error, session.EventRecover, session.ReasonRetry))
	}
	e := why.Explain(why.Transition, "", f, why.History{})
	require.Len(t, e.Causes, why.MaxCauses)
	require.True(t, e.Truncated)
	for _, c := range e.Causes {
		require.Less(t, len(c.Text), 1500)
	}
}

// TestEveryCodeIsListedAndDescribed compares the constants with Codes and docs/why.md.
func TestEveryCodeIsListedAndDescribed(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "code.go", nil, 0)
	require.NoError(t, err)
	var declared []why.Code
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
			if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
				declared = append(declared, why.Code(strings.Trim(literal.Value, `"`)))
			}
		}
		return true
	})
	require.ElementsMatch(t, declared, why.Codes)
	doc, err := os.ReadFile("../../docs/why.md")
	require.NoError(t, err)
	for _, code := range why.Codes {
		require.Contains(t, string(doc), "| `"+string(code)+"` |")
	}
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(why.Codes))), len(why.Codes))
}

func TestSlowStepReportsWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	h := why.History{Open: true, Pending: []why.Pending{{
		Activity: "CreateSandbox", Started: true, StartedAt: at(40), HeartbeatAt: at(99), Awaits: "the provider to create the sandbox", AwaitsSince: at(41),
	}}}
	f := starting()
	f.Session.StartWait = nil
	e := why.Explain(why.Session, "", f, h)
	require.Equal(t, why.StepSlow, e.Code)
	require.Contains(t, e.Summary, "and waits for the provider to create the sandbox since 2026-01-02T03:04:46Z")
}
