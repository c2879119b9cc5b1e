package activities_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestRepeatedClaimIsGranted(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	in := b.claim(t, b.create(t), "claimed")
	claim := activities.ClaimRequest{SessionID: b.id, PromptID: in.PromptID, RunID: in.RunID, Generation: 1}
	position := len(b.events(t))
	verdict, err := do(b, attempt{}, b.control.BeginRun, claim)
	require.NoError(t, err)
	require.True(t, verdict.Granted)
	require.Len(t, b.events(t), position)
	claim.RunID = session.NewID(session.RunPrefix)
	verdict, err = do(b, attempt{}, b.control.BeginRun, claim)
	require.NoError(t, err)
	require.False(t, verdict.Granted)
	require.Equal(t, in.RunID, verdict.HeldBy)
}

func TestUnclaimedRunReturnsPrompt(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	in := b.claim(t, b.create(t), "claimed")
	request := activities.SettleRequest{RunID: in.RunID, Outcome: session.OutcomeUnknown, Reason: session.ReasonSandboxLost, ReturnUntouched: true}
	for range 2 {
		settled, err := do(b, attempt{}, b.control.SettleRun, request)
		require.NoError(t, err)
		require.Equal(t, activities.Settled{Returned: true}, settled, "and so when it is done again")
	}
	require.Equal(t, session.PromptQueued, b.prompt(t, in.PromptID).Status)
}

func TestCancelEndsEveryPromptOnce(t *testing.T) {
	t.Parallel()
	b := setupMemory(t)
	in := b.claim(t, b.create(t), "running")
	waiting, _, _, err := b.db.PromptSubmit(b.ctx, session.Prompt{ID: session.NewID(session.PromptPrefix), SessionID: b.id, Content: "waiting"})
	require.NoError(t, err)
	for range 2 {
		_, err := do(b, attempt{}, plain(b.control.CancelPrompts), activities.PromptsRequest{SessionID: b.id, Reason: session.ReasonSessionTerminated})
		require.NoError(t, err)
	}
	require.Equal(t, session.PromptCancelled, b.prompt(t, in.PromptID).Status)
	require.Equal(t, session.PromptCancelled, b.prompt(t, waiting.ID).Status)
	require.Len(t, b.of(t, in.RunID, "turn_end"), 1)
	_, err = b.turn(in)
	require.NoError(t, err, "a worker that still believes in it reports its end")
}

func TestEndedRunKeepsOutcome(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := b.claim(t, b.create(t), "done")
	_, err := b.turn(in)
	require.NoError(t, err)
	_, err = do(b, attempt{}, b.control.SettleRun, activities.SettleRequest{RunID: in.RunID, Outcome: session.OutcomeUnknown, Reason: "late"})
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, b.run(t, in.RunID).Outcome)
}

// TestEndRecordedOnlyInLogIsKept loses the worker between the last frame and the outcome, and the
// sandbox afterwards.
func TestEndRecordedOnlyInLogIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := b.claim(t, b.create(t), "done")
	ctx, cancel := context.WithCancel(b.ctx)
	b.steps.set(nil, func(step string) {
		if step == stepAppend && b.ended(in.RunID) {
			cancel()
		}
	})
	_, err := do(b, attempt{ctx: ctx}, b.turns.RunTurn, in)
	require.Error(t, err)
	b.steps.set(nil, nil)
	require.Empty(t, b.run(t, in.RunID).Outcome)
	_, err = do(b, attempt{}, b.control.SettleRun, activities.SettleRequest{RunID: in.RunID, Outcome: session.OutcomeUnknown, Reason: "lost"})
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCompleted, b.run(t, in.RunID).Outcome)
	require.Equal(t, session.PromptCompleted, b.prompt(t, in.PromptID).Status)
}

// ended reports whether the frame that ends a run is committed.
func (b *harness) ended(runID string) bool {
	r, err := b.db.RunGet(b.ctx, runID)
	return err == nil && strings.Contains(string(r.Translator), `"end":`)
}

// token is the token of the runner of a generation.
func (b *harness) token(t *testing.T, keys activities.Keys, generation int64) string {
	t.Helper()
	id, err := b.db.SandboxLinkKey(b.ctx, b.id, generation)
	require.NoError(t, err)
	key, err := keys.LinkKey(id)
	require.NoError(t, err)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("runner link " + session.SandboxName(b.id, generation)))
	return hex.EncodeToString(mac.Sum(nil))
}

// TestSecretsAreNotStoredInClearText looks for the text of a prompt and the token of the runner
// in the inputs and results that Temporal stores, and in every command line.
func TestSecretsAreNotStoredInClearText(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var kept []any // inputs and results of activities
	ready := b.create(t)
	secrets := []string{"a-secret-in-a-prompt", b.token(t, b.config.Keys, 1), string(masterKey)}
	in := b.claim(t, ready, "slow 20ms: "+strings.Repeat("a-secret-in-a-prompt ", 30))
	turn := b.begin(t, in)
	b.await(t, in.RunID, "text_delta")
	processes := b.shell(t, ready.SandboxID, `for p in /proc/[0-9]*; do tr '\0' ' ' <$p/cmdline; echo; done 2>/dev/null; true`)
	require.Contains(t, processes, "attach")
	environment := b.shell(t, ready.SandboxID, `for p in /proc/[0-9]*; do tr '\0' ' ' <$p/environ; echo; done 2>/dev/null; true`)
	result, err := turn.wait(t)
	require.NoError(t, err)
	saved, err := b.save(ready)
	require.NoError(t, err)
	opened, err := do(b, attempt{}, b.control.OpenSession, activities.SessionRef{SessionID: b.id})
	require.NoError(t, err)
	kept = append(kept, ready, in, result, saved, opened, b.driver.argvs())
	text, err := json.Marshal(kept)
	require.NoError(t, err)
	for _, secret := range secrets {
		require.NotContains(t, string(text), secret)
		require.NotContains(t, processes, secret)
		require.NotContains(t, environment, secret)
	}
}

// TestSignalsCarryNoText checks that no field of an activity's input or result can hold the content
// of a prompt, an event or a file.
func TestSignalsCarryNoText(t *testing.T) {
	t.Parallel()
	var walk func(at string, typ reflect.Type)
	walk = func(at string, typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Slice, reflect.Pointer:
			require.NotEqual(t, reflect.Uint8, typ.Elem().Kind(), "%s holds bytes", at)
			walk(at, typ.Elem())
		case reflect.Struct:
			for i := range typ.NumField() {
				f := typ.Field(i)
				if !f.IsExported() {
					continue
				}
				for _, word := range []string{"Content", "Text", "Token", "Secret", "Data", "Prompts"} {
					require.NotEqual(t, word, f.Name, "%s.%s", at, f.Name)
				}
				walk(at+"."+f.Name, f.Type)
			}
		default:
		}
	}
	for _, registered := range []any{&activities.Control{}, &activities.Turns{}} {
		typ := reflect.TypeOf(registered)
		for i := range typ.NumMethod() {
			m := typ.Method(i)
			for n := 2; n < m.Type.NumIn(); n++ { // after the receiver and the context
				walk(m.Name, m.Type.In(n))
			}
			for n := range m.Type.NumOut() - 1 { // before the error
				walk(m.Name, m.Type.Out(n))
			}
		}
	}
}
