package activities_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
	"github.com/overwinter-dev/overwinter/internal/secret"
)

// masks are the secrets of a test.
type masks struct{ masker *secret.Masker }

func (m masks) Masker(context.Context) (*secret.Masker, error) { return m.masker, nil }

func (b *harness) mask(name, value string) {
	b.config.Masks = masks{secret.NewMasker([]secret.Named{{Name: name, Value: secret.NewValue(value)}})}
	b.build()
}

// The agent prints a key word by word, one frame each, and the worker is lost after each commit
// that holds back a part of it. The committed events show at most a third of the key, and no other
// text is lost.
func TestSplitKeyIsMaskedAfterWorkerLoss(t *testing.T) {
	t.Parallel()
	const key = "correct horse battery staple of nine words in all"
	b := setup(t)
	b.mask("PASSPHRASE", key)
	ready := b.create(t)
	in := b.claim(t, ready, "slow 150ms: it is "+key+" and correct horse is not\nrepeat it: "+key)

	losses := map[string]bool{}
	var lose atomic.Pointer[context.CancelFunc]
	b.steps.set(func(_ string, a *eventlog.Append) error {
		if a == nil {
			return nil
		}
		var state struct {
			Held []struct{ T string } `json:"held"`
		}
		require.NoError(t, json.Unmarshal(a.State, &state))
		for _, h := range state.Held {
			// Each worker is lost once, in the middle of the key: the attempt ends after this
			// commit.
			if n := strings.Count(h.T, " "); n >= 1 && !losses[h.T] {
				losses[h.T] = true
				(*lose.Load())()
			}
		}
		return nil
	}, nil)
	var err error
	for range 30 {
		ctx, cancel := context.WithCancel(b.ctx)
		lose.Store(&cancel)
		_, err = do(b, attempt{ctx: ctx}, b.turns.RunTurn, in)
		cancel()
		if err == nil {
			break
		}
		b.build() // another worker, which only has the stored state
	}
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(losses), 3, "the worker was lost within the key: %v", losses)

	output := b.output(t, in.RunID)
	require.Contains(t, output, "it is [redacted PASSPHRASE] and correct horse is not")
	var streamed strings.Builder
	for _, e := range b.events(t) {
		if e.RunID != in.RunID {
			continue
		}
		require.NotContains(t, string(e.Data), key)
		if e.Type == string(conversation.EventTextDelta) {
			var d conversation.TextDelta
			require.NoError(t, json.Unmarshal(e.Data, &d))
			streamed.WriteString(d.Delta)
		}
	}
	require.Contains(t, streamed.String(), "it is [redacted PASSPHRASE] and correct horse is not", "the stream shows the same text as the whole block")
	require.NotContains(t, streamed.String(), "correct horse battery")
	files, err := postgrestest.Transcripts(b.ctx, b.db, b.id)
	require.NoError(t, err)
	require.Contains(t, string(files[0].Data), key, "the agent's own memory stays exact")
}

func TestEndReasonIsMasked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.mask("TOKEN", "not-to-be-seen-1234")
	in := b.claim(t, b.create(t), "fail: not-to-be-seen-1234")
	result, err := b.turn(in)
	require.NoError(t, err)
	require.NotContains(t, result.Reason, "not-to-be-seen-1234")
	for _, e := range b.events(t) {
		if e.RunID == in.RunID && e.Type != "prompt" {
			require.NotContains(t, string(e.Data), "not-to-be-seen-1234", e.Type)
		}
	}
	require.NotContains(t, b.run(t, in.RunID).Reason, "not-to-be-seen-1234")
}

func TestPathsOfFilesAreMaskedInEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.mask("TOKEN", "not-to-be-seen-1234")
	ready := b.create(t)
	in := b.claim(t, ready, "$ touch name-not-to-be-seen-1234.txt plain.txt\nslow 100ms: and the watcher finds them both in time")
	_, err := b.turn(in)
	require.NoError(t, err)
	_, err = b.save(ready) // the seal finds files that the turn has not found
	require.NoError(t, err)
	var reported []string
	for _, e := range b.events(t) {
		if e.Type == "file" {
			reported = append(reported, string(e.Data))
		}
	}
	require.Contains(t, strings.Join(reported, "\n"), "plain.txt")
	require.Contains(t, strings.Join(reported, "\n"), "name-[redacted TOKEN].txt")
	require.NotContains(t, strings.Join(reported, "\n"), "not-to-be-seen-1234")
}
