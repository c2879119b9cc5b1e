package activities_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/problem"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// twice creates a session with a bundle after each of two turns. It is hibernated with the second
// one.
func twice(t *testing.T) (b *harness, first, second bundle.Bundle) {
	t.Helper()
	b = asleep(t, nil)
	first = b.head(t)
	ready, err := b.restore(2)
	require.NoError(t, err)
	b.say(t, ready, "the second thing\nwrite notes: changed\nwrite more: added")
	_, err = b.save(ready)
	require.NoError(t, err)
	b.terminate(t, ready)
	b.transit(t, session.EventHibernate)
	b.transit(t, session.EventSaved)
	return b, first, b.head(t)
}

// revertTo submits a revert with files and wakes the session, which executes it.
func (b *harness) revertTo(t *testing.T, bundleID string) session.Command {
	t.Helper()
	done, err := b.db.CommandSubmit(b.ctx, session.Command{SessionID: b.id, Kind: session.CommandRevertFiles, BundleID: bundleID})
	require.NoError(t, err)
	b.transit(t, session.EventWake)
	return *done.Command
}

// reverted checks a session that was restored to its first bundle.
func (b *harness) reverted(t *testing.T, ready activities.SandboxReady) {
	t.Helper()
	require.Equal(t, receipt.Full, ready.Receipt.Kind, "%+v", ready.Receipt)
	require.Equal(t, "kept", b.shell(t, ready.SandboxID, "cat /workspace/notes"))
	require.Equal(t, "gone\n", b.shell(t, ready.SandboxID, "test -e /workspace/more || echo gone"))
	answer := b.say(t, ready, "recall")
	require.Contains(t, answer, "2 prompts")
	require.NotContains(t, answer, "the second thing")
	conversation, _, err := b.db.ConversationPage(b.ctx, b.id, 0, "")
	require.NoError(t, err)
	require.NotContains(t, texts(conversation), "the second thing")
	positions, err := b.db.TranscriptPositions(b.ctx, b.id)
	require.NoError(t, err)
	require.NotEmpty(t, positions, "the turn has stored the memory of the sandbox")
}

func texts(c conversation.Conversation) string {
	var out strings.Builder
	for _, thread := range c.Threads {
		for _, block := range thread.Blocks {
			out.WriteString(block.Content + "\n")
		}
	}
	return out.String()
}

// problems returns the codes of the session's error events.
func (b *harness) problems(t *testing.T) (codes []string) {
	t.Helper()
	for _, e := range b.events(t) {
		if e.Type == string(conversation.EventError) {
			var p conversation.Problem
			require.NoError(t, json.Unmarshal(e.Data, &p))
			codes = append(codes, p.Code)
		}
	}
	return codes
}

// TestRevertWithFilesIsCompleted ends attempts before and after each step of the restore that reverts.
func TestRevertWithFilesIsCompleted(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"", stepRevertDue, stepSandboxes, stepRevertTo} {
		for _, after := range []bool{false, true} {
			name := "before " + step
			if after {
				name = "after " + step
			}
			if step == "" {
				name = "undisturbed"
			}
			if step == "" && after {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b, first, second := twice(t)
				b.revertTo(t, first.ID)
				if step != "" {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if after {
						b.steps.set(nil, func(at string) {
							if at == step {
								cancel()
							}
						})
					} else {
						b.steps.set(func(at string, _ *eventlog.Append) error {
							if at == step {
								return errInjected
							}
							return nil
						}, nil)
					}
					_, err := do(b, attempt{ctx: ctx}, b.control.RestoreSandbox, activities.SandboxRequest{SessionID: b.id, Generation: 3})
					require.Error(t, err)
					b.steps.set(nil, nil)
				}
				ready, err := b.restore(3)
				require.NoError(t, err)
				b.reverted(t, ready)
				head := b.head(t)
				require.Equal(t, first.SnapshotID, head.SnapshotID)
				require.NotEqual(t, first.ID, head.ID)
				at, _, err := b.db.ConversationAt(b.ctx, second.ID, 0, "")
				require.NoError(t, err)
				require.Contains(t, texts(at), "the second thing", "the undone conversation can be read")
				require.Empty(t, b.problems(t))
			})
		}
	}
}

// TestRefusedRevertChangesNothing checks that files, memory and conversation stay the same, and
// that the refusal has a reason.
func TestRefusedRevertChangesNothing(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, b *harness, first bundle.Bundle){
		"the snapshot was deleted": func(t *testing.T, b *harness, first bundle.Bundle) {
			t.Helper()
			require.NoError(t, b.provider.DeleteImage(b.ctx, first.SnapshotID))
		},
		"its files are not as they were": func(t *testing.T, b *harness, first bundle.Bundle) {
			t.Helper()
			b.sql(t, `UPDATE bundles SET manifest = replace(manifest::text, '"sha256":"', '"sha256":"00')::json WHERE id = $1`, first.ID)
		},
		"its files are about to be deleted": func(t *testing.T, b *harness, first bundle.Bundle) {
			t.Helper()
			b.sql(t, `UPDATE snapshots SET unneeded_at = now(), condemned_at = now() WHERE id = $1`, first.SnapshotID)
		},
		"its runner does not start": func(t *testing.T, b *harness, first bundle.Bundle) {
			t.Helper()
			b.sql(t, `UPDATE sandboxes SET image_id = $2, ready_at = NULL WHERE session_id = $1`, b.id, first.SnapshotID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, first, second := twice(t)
			command := b.revertTo(t, first.ID)
			spoil(t, b, first)
			ready, err := b.restore(3)
			if activities.TypeOf(err) == activities.GenerationUnusable {
				ready, err = b.restore(4)
			}
			require.NoError(t, err)
			require.Equal(t, receipt.Full, ready.Receipt.Kind, "%+v", ready.Receipt)
			require.Equal(t, second.ID, b.head(t).ID)
			require.Equal(t, "changed", b.shell(t, ready.SandboxID, "cat /workspace/notes"))
			require.Contains(t, b.say(t, ready, "recall"), "3 prompts")
			c, _, err := b.db.ConversationPage(b.ctx, b.id, 0, "")
			require.NoError(t, err)
			require.Contains(t, texts(c), "the second thing")
			require.Equal(t, []string{problem.RevertFailed}, b.problems(t))
			s, err := b.db.SessionGet(b.ctx, b.id)
			require.NoError(t, err)
			require.False(t, slices.ContainsFunc(s.Pending, func(c session.Command) bool { return c.ID == command.ID }))
		})
	}
}

// TestOutageDuringRevertIsRetried checks that a transient error leaves the revert pending.
func TestOutageDuringRevertIsRetried(t *testing.T) {
	t.Parallel()
	b, first, _ := twice(t)
	b.revertTo(t, first.ID)
	b.driver.set(func(f *faulty) {
		f.imageExists = func(string) error { return driver.Errorf(driver.Unavailable, "look", "", "injected") }
	})
	_, err := b.restore(3)
	require.Error(t, err)
	b.driver.repair()
	ready, err := b.restore(3)
	require.NoError(t, err)
	b.reverted(t, ready)
}
