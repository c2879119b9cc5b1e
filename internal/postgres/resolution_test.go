package postgres_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// unknown runs a prompt and loses its outcome.
func (b *harness) unknown(t *testing.T) (promptID, runID string) {
	t.Helper()
	promptID = b.submit(t, "x")
	runID = b.begin(t, promptID)
	_, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Outcome: session.OutcomeUnknown, Reason: session.ReasonSandboxLost})
	require.NoError(t, err)
	return promptID, runID
}

func TestPromptOfUnknownOutcomeBlocksNoOtherAndIsResolved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	counts := func() session.QueueCounts {
		t.Helper()
		s, err := b.SessionGet(b.ctx, b.id)
		require.NoError(t, err)
		return s.Queue
	}
	lost, runID := b.unknown(t)
	next := b.submit(t, "the next one")
	require.Equal(t, session.QueueCounts{Queued: 1, Unknown: 1}, counts())
	_, err := b.RunEnd(b.ctx, run.Ending{RunID: b.begin(t, next), Outcome: session.OutcomeCompleted})
	require.NoError(t, err, "hold blocks no prompt after it")

	retry := session.Resolve{SessionID: b.id, PromptID: lost, Action: session.ResolutionRetry, RunID: runID}
	p, changed, err := b.PromptResolve(b.ctx, retry)
	require.NoError(t, err)
	require.True(t, changed)
	require.True(t, p.Notify, "the workflow is signalled")
	require.Equal(t, session.PromptQueued, p.Status)
	require.EqualValues(t, 1, p.Ordinal, "it has its place")
	require.Equal(t, session.QueueCounts{Queued: 1}, counts())
	require.Equal(t, []string{"prompt", "queue"}, b.types(t, b.position(t)-2))

	again := b.begin(t, lost)
	_, err = b.RunEnd(b.ctx, run.Ending{RunID: again, Outcome: session.OutcomeUnknown})
	require.NoError(t, err)
	p, changed, err = b.PromptResolve(b.ctx, retry)
	require.NoError(t, err)
	require.False(t, changed, "the request is of the first run")
	require.Equal(t, session.PromptUnknown, p.Status)
	retry.RunID = session.NewID(session.RunPrefix)
	p, changed, err = b.PromptResolve(b.ctx, retry)
	require.NoError(t, err)
	require.False(t, changed)
	require.Equal(t, session.PromptUnknown, p.Status)

	resolve := session.Resolve{SessionID: b.id, PromptID: lost, Action: session.ResolutionResolve, Outcome: session.PromptCompleted, Note: "seen"}
	p, changed, err = b.PromptResolve(b.ctx, resolve)
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, session.ReasonResolved, p.Reason)
	require.Equal(t, "seen", p.Resolved.Note)
	log := b.events(t)
	var data event.PromptData
	require.NoError(t, json.Unmarshal(log[len(log)-1].Data, &data))
	require.Equal(t, session.PromptCompleted, data.Prompt.Status)
	require.Equal(t, "seen", data.Prompt.Resolution.Note)
	require.Zero(t, counts())
}

func TestRetryRequiresActiveSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	first, _ := b.unknown(t)
	second, _ := b.unknown(t)
	try := func(promptID string, action session.Resolution, outcome session.PromptStatus) error {
		_, _, err := b.PromptResolve(b.ctx, session.Resolve{SessionID: b.id, PromptID: promptID, Action: action, Outcome: outcome})
		return err
	}
	requireCode(t, failure.NoPrompt, try("nope", session.ResolutionRetry, ""))
	_, _, err := b.PromptResolve(b.ctx, session.Resolve{
		SessionID: b.id, PromptID: first, Action: session.ResolutionRetry, RunID: session.NewID(session.RunPrefix),
	})
	requireCode(t, failure.NoRun, err)
	b.transit(t, session.EventFail, "no room")
	requireCode(t, failure.InError, try(first, session.ResolutionRetry, ""))
	b.transit(t, session.EventStop, "")
	requireCode(t, failure.Terminated, try(first, session.ResolutionRetry, ""))
	require.NoError(t, try(first, session.ResolutionDismiss, ""))
	require.NoError(t, try(second, session.ResolutionResolve, session.PromptFailed))
}

// TestPromptsFollowTheirModel draws the operations on one prompt and compares its row with a model.
func TestPromptsFollowTheirModel(t *testing.T) {
	t.Parallel()
	shared := setup(t)
	rapid.Check(t, func(rt *rapid.T) {
		b := &harness{DB: shared.DB, ctx: shared.ctx}
		b.id = b.session(t)
		b.running(t)
		id := b.submit(t, "x")
		model := session.PromptQueued
		last := session.Resolution("")
		runID, outcome := "", session.PromptStatus("")
		resolve := func(action session.Resolution, as session.PromptStatus) {
			r := session.Resolve{SessionID: b.id, PromptID: id, Action: action, Outcome: as}
			_, changed, err := b.PromptResolve(b.ctx, r)
			switch {
			case model == session.PromptUnknown:
				require.NoError(rt, err)
				require.True(rt, changed)
				model, last, outcome = r.Status(), action, as
			case last == action && (action == session.ResolutionRetry || action == session.ResolutionDismiss && model == session.PromptCancelled || as == outcome && model == as):
				require.NoError(rt, err)
				require.False(rt, changed)
			default:
				require.Equal(rt, failure.NotUnknown, failure.CodeOf(err), "%v", err)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"run": func(*rapid.T) {
				if model == session.PromptQueued {
					runID, model = b.begin(t, id), session.PromptProcessing
				}
			},
			"end": func(rt *rapid.T) {
				if model != session.PromptProcessing {
					return
				}
				ended := rapid.SampledFrom([]session.Outcome{
					session.OutcomeUnknown, session.OutcomeUnknown, session.OutcomeUnknown, session.OutcomeCompleted, session.OutcomeFailed,
				}).Draw(rt, "outcome")
				_, err := b.RunEnd(b.ctx, run.Ending{RunID: runID, Outcome: ended})
				require.NoError(rt, err)
				model = ended.PromptStatus()
			},
			"withdraw": func(*rapid.T) {
				_, err := b.PromptWithdraw(b.ctx, b.id, id)
				if model == session.PromptQueued {
					require.NoError(rt, err)
					model = session.PromptCancelled
					return
				}
				require.Error(rt, err)
			},
			"retry":   func(*rapid.T) { resolve(session.ResolutionRetry, "") },
			"dismiss": func(*rapid.T) { resolve(session.ResolutionDismiss, "") },
			"resolve": func(rt *rapid.T) {
				resolve(session.ResolutionResolve, rapid.SampledFrom([]session.PromptStatus{session.PromptCompleted, session.PromptFailed}).Draw(rt, "outcome"))
			},
			"": func(rt *rapid.T) {
				p, err := b.PromptGet(b.ctx, b.id, id)
				require.NoError(rt, err)
				require.Equal(rt, model, p.Status)
				require.Equal(rt, model.Final(), !p.EndedAt.IsZero())
				require.Equal(rt, last != "", p.Resolved != nil)
				s, err := b.SessionGet(b.ctx, b.id)
				require.NoError(rt, err)
				count := func(status session.PromptStatus) int64 {
					if model == status {
						return 1
					}
					return 0
				}
				require.Equal(rt, session.QueueCounts{
					Queued: count(session.PromptQueued), Processing: count(session.PromptProcessing), Unknown: count(session.PromptUnknown),
				}, s.Queue)
			},
		})
	})
}
