package test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/overwinter-dev/overwinter/internal/localmodal/access"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
	"github.com/overwinter-dev/overwinter/internal/sandbox/modalsandbox"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// TestReconcilerEndsOrphans leaks a sandbox without an owner and kills one in use: within one
// interval the first is terminated, and the session of the second is notified.
func TestReconcilerEndsOrphans(t *testing.T) {
	t.Parallel()
	s := startStackEnv(t, []string{"OVERWINTER_RECONCILE_EVERY=2s"})
	ctx := t.Context()

	id := s.create(t, object{"prompt": object{"id": "p", "content": "write kept.txt: still here"}})
	require.Equal(t, "completed", s.waitPrompt(t, id, "p", 60*time.Second)["status"])

	drv, err := modalsandbox.New(s.modalConfig(t))
	require.NoError(t, err)
	defer drv.Close()
	listed, err := driver.Collect(drv.List(ctx, map[string]string{sandbox.TagSession: id}))
	require.NoError(t, err)
	require.Len(t, listed, 1)
	provider := sandbox.NewProvider(drv, sandbox.Options{Installation: listed[0].Tags[sandbox.TagInstallation]})

	stray, _, err := provider.Create(ctx, sandbox.Spec{
		Session: session.NewID(session.SessionPrefix), Generation: 1, Image: sandbox.DefaultBase, Timeout: time.Hour,
	})
	require.NoError(t, err)
	foreign := sandbox.NewProvider(drv, sandbox.Options{Installation: "another"})
	other, _, err := foreign.Create(ctx, sandbox.Spec{
		Session: session.NewID(session.SessionPrefix), Generation: 1, Image: sandbox.DefaultBase, Timeout: time.Hour,
	})
	require.NoError(t, err)
	eventually(t, within, "the stray sandbox is terminated", func() error { return ended(ctx, stray) })
	require.Error(t, ended(ctx, other), "another installation's sandbox is left alone")

	require.NoError(t, provider.Open(listed[0].ID).Terminate(ctx))
	slept := s.waitStatus(t, id, "hibernated", within)
	require.Equal(t, "lost", slept["statusReason"])

	s.prompt(t, id, "again", "recall\n$ cat kept.txt")
	require.Equal(t, "completed", s.waitPrompt(t, id, "again", 60*time.Second)["status"])
	require.Contains(t, s.text(t, id), "still here")
	require.Contains(t, s.text(t, id), "2 prompts")
	woken := s.must(t, http.StatusOK, "GET", "/api/sessions/"+id, nil)
	require.Equal(t, "unverified", woken["receipt"].(object)["kind"], "%v", woken["receipt"])
}

// TestTerminatedWorkflowIsRevived terminates a workflow, as any user can in Temporal's UI,
// in the middle of a turn: the session resumes, and the turn continues.
func TestTerminatedWorkflowIsRevived(t *testing.T) {
	t.Parallel()
	s := startStackEnv(t, []string{"OVERWINTER_RECONCILE_EVERY=2s"})
	temporal, err := client.Dial(client.Options{HostPort: s.engine, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	require.NoError(t, err)
	defer temporal.Close()

	turn := s.startTurn(t)
	require.NoError(t, temporal.TerminateWorkflow(t.Context(), turn.session, "", "tried by hand"))
	s.endTurn(t, turn, []string{"completed"}, "workflow_terminated")
}

// ended is nil when the sandbox has ended.
func ended(ctx context.Context, sb *sandbox.Sandbox) error {
	status, err := sb.Poll(ctx)
	if driver.CodeOf(err) == driver.Gone {
		return nil
	}
	if err != nil {
		return err
	}
	if status.Running {
		return fmt.Errorf("sandbox %s runs", sb.ID())
	}
	return nil
}

// modalConfig returns the worker's configuration of the stack's local Modal.
func (s *stack) modalConfig(t *testing.T) modalsandbox.Config {
	t.Helper()
	token, err := access.Load(filepath.Join(s.dir, "modal"))
	require.NoError(t, err)
	return modalsandbox.Config{ServerURL: s.modalURL(t), TokenID: token.ID, TokenSecret: secret.NewValue(token.Secret)}
}

// modalURL returns the URL of the stack's local Modal.
func (s *stack) modalURL(t *testing.T) string {
	t.Helper()
	for _, line := range s.processes() {
		words := strings.Fields(line)
		for i, w := range words {
			if strings.HasPrefix(w, "--address=") && strings.Contains(line, "local-modal") {
				return "http://" + strings.TrimPrefix(w, "--address=")
			}
			if w == "--address" && strings.Contains(line, "local-modal") && i+1 < len(words) {
				return "http://" + words[i+1]
			}
		}
	}
	t.Fatalf("no local Modal among %v", s.processes())
	return ""
}
