package test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// TestPurgeErasesSessionEverywhere plants words in every text of a session, of a fork of it and of its
// portable archive, purges both sessions while every part is killed in turn, and looks for the
// words in every table, log, snapshot and history.
func TestPurgeErasesSessionEverywhere(t *testing.T) {
	t.Parallel()
	s := startTemporalStack(t, nil)
	planted := "planted" + strings.TrimPrefix(session.NewID(""), "0")[:24]
	secretLike := "sk-ant-" + planted

	kept := s.create(t, object{"prompt": object{"id": "p", "content": "write kept.txt: stays"}})
	require.Equal(t, "completed", s.waitPrompt(t, kept, "p", 2*time.Minute)["status"])

	id := s.create(t, object{
		"title": planted, "metadata": object{"word": planted},
		"workspace": object{"setup": "echo " + planted + " > prepared.txt"},
		"prompt": object{"id": "first", "content": "write " + planted + ".txt: " + planted + "\nsaid " + planted + " " + secretLike +
			"\n$ echo " + planted + " >&2; echo " + planted + "; (exec -a " + planted + " sleep 600) & exit 3"},
	})
	require.Equal(t, "completed", s.waitPrompt(t, id, "first", 2*time.Minute)["status"])
	require.Contains(t, s.text(t, id), planted)
	s.insist(t, "POST", "/api/sessions/"+id+"/hibernate", nil)
	s.waitStatus(t, id, "hibernated", 2*time.Minute)
	require.NotEmpty(t, s.export(t, id), "its bundle is stored as an archive, too")
	fork := s.must(t, http.StatusCreated, "POST", "/api/sessions/"+id+"/fork", object{
		"promptId": "first", "prompt": object{"id": "forked", "content": "recall " + planted + "\n$ cat " + planted + ".txt"},
	})["id"].(string)
	require.Equal(t, "completed", s.waitPrompt(t, fork, "forked", 2*time.Minute)["status"])
	require.Contains(t, s.text(t, fork), planted)
	s.must(t, http.StatusAccepted, "POST", "/api/sessions/"+id+"/prompts", object{
		"id": "second", "content": "recall\n$ cat " + planted + ".txt",
		"attachments": []object{{"name": planted + "-attached.txt", "data": []byte("attached " + planted)}}, // base64, as JSON has bytes
	})
	require.Equal(t, "completed", s.waitPrompt(t, id, "second", 2*time.Minute)["status"])
	s.prompt(t, id, "third", "sleep 10m") // the session is erased in the middle of a turn
	s.waitStatus(t, id, "running", 2*time.Minute)
	require.NotEmpty(t, s.filesWith(t, planted), "the words are in the files of the local Modal")
	readers := s.follow(t, id)
	defer readers.stop()
	readers.wait(t, 2*time.Minute, "the stream begins", func(event) bool { return true })

	path := "/api/sessions/" + id
	code, got, err := s.call("DELETE", path+"?purge=maybe", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusBadRequest, code, "%v", got)
	refused := s.must(t, http.StatusConflict, "DELETE", path+"?purge=true", nil)
	require.Equal(t, "has_forks", refused["code"])
	first := s.must(t, http.StatusAccepted, "DELETE", path+"?purge=true&forks=purge", nil)
	require.NotEmpty(t, first["purge"])
	second := s.must(t, http.StatusAccepted, "DELETE", path+"?purge=true", nil)
	require.Equal(t, first["purge"].(object)["requestedAt"], second["purge"].(object)["requestedAt"])

	states := map[string]bool{}
	gone := func() bool {
		code, got, err := s.call("GET", path, nil)
		if err == nil && code == http.StatusOK {
			states[fmt.Sprint(got["purge"].(object)["state"])] = true
		}
		forked, _, forkErr := s.call("GET", "/api/sessions/"+fork, nil)
		return errors.Join(err, forkErr) == nil && code == http.StatusNotFound && forked == http.StatusNotFound
	}
	// Each part is killed during the purge. The supervisor restarts it.
	for _, part := range [][]string{{"overwinter worker"}, {"local-modal"}, {"overwinter worker"}, {"overwinter-temporal"}, {"overwinter worker"}} {
		if gone() {
			break
		}
		lost := s.child(t, part...)
		require.NoError(t, syscall.Kill(lost, syscall.SIGKILL))
		eventually(t, time.Minute, part[0]+" is started again", func() error {
			if pid := s.child(t, part...); pid == lost {
				return fmt.Errorf("process %d is there", pid)
			}
			return nil
		})
	}
	eventually(t, 5*time.Minute, "the session is erased", func() error {
		if !gone() {
			return fmt.Errorf("states %v", states)
		}
		return nil
	})
	require.NotEmpty(t, states)
	eventually(t, time.Minute, "the stream ends", func() error {
		if !readers.finished() {
			return fmt.Errorf("at %d", readers.last())
		}
		return nil
	})
	for _, route := range []string{"", "/events", "/prompts", "/blocks", "/files", "/questions", "/state"} {
		code, _, err := s.call("GET", path+route, nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusNotFound, code, route)
	}
	code, _, err = s.call("DELETE", path+"?purge=true", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusNotFound, code)

	databaseIsClean(t, s.databaseURL, planted)
	eventually(t, 2*time.Minute, "no file has the words", func() error {
		if found := s.filesWith(t, planted); len(found) > 0 {
			return fmt.Errorf("%v", found)
		}
		return nil
	})
	s.historyIsGone(t, id)
	s.historyIsGone(t, fork)
	require.Equal(t, "completed", s.waitPrompt(t, kept, "p", time.Minute)["status"], "another session is as it was")
	s.prompt(t, kept, "more", "$ cat kept.txt")
	require.Equal(t, "completed", s.waitPrompt(t, kept, "more", 2*time.Minute)["status"])
	require.Contains(t, s.text(t, kept), "stays")
}

// historyIsGone waits until Temporal has no run of a session's workflow.
func (s *stack) historyIsGone(t *testing.T, id string) {
	t.Helper()
	temporal, err := client.Dial(client.Options{HostPort: s.engine, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	require.NoError(t, err)
	defer temporal.Close()
	eventually(t, 2*time.Minute, "Temporal has nothing of the session", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		list, err := temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{Namespace: "default", Query: "WorkflowId = '" + id + "'"})
		if err != nil {
			return err
		}
		if n := len(list.GetExecutions()); n > 0 {
			return fmt.Errorf("%d runs are listed", n)
		}
		if _, err := temporal.DescribeWorkflowExecution(ctx, id, ""); err == nil || !strings.Contains(err.Error(), "not found") {
			return fmt.Errorf("describe: %w", err)
		}
		return nil
	})
}

// filesWith lists files of the data directory that have the words in their content or name: logs, Temporal's database,
// snapshots, layers and journals.
func (s *stack) filesWith(t *testing.T, words string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(s.dir, func(path string, entry fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // deleted in the meantime
		}
		if err != nil {
			return err
		}
		if strings.Contains(entry.Name(), words) {
			found = append(found, path)
			return nil
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		raw, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(raw), words) {
			found = append(found, path)
		}
		return nil
	})
	require.NoError(t, err)
	return found
}
