package test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/sandbox/driver"
	"github.com/overwinter-dev/overwinter/internal/sandbox/modalsandbox"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// An audit compares the promises to a session's client with every view of the session: rows,
// events, blocks, hits outside the sandbox, and the workflow's own state. It returns the
// differences.
type audit struct {
	s      *subject
	conn   *pgx.Conn
	faults []string

	status, reason string // of the session
	receipts       []string
	rows           map[string]promptRow
	runs           []runRow
	events         []event
}

type promptRow struct {
	ID, Status, Reason, RunID, OnUnknown string
	Ordinal                              int64
}

type runRow struct {
	ID, PromptID, Outcome, Reason string
	Attempt                       int64
}

// audit fails the test with all differences. The session must have settled.
func (s *subject) audit(t *testing.T) {
	t.Helper()
	a := &audit{s: s, conn: s.connect(t)}
	defer a.conn.Close(context.WithoutCancel(t.Context()))
	a.load(t)
	a.checkStream(t)
	a.checkTransitions(t)
	a.checkPrompts()
	a.checkBlocks(t)
	a.checkState(t)
	if len(a.faults) > 0 {
		t.Errorf("session %s (%s %s):\n  %s", s.id, a.status, a.reason, strings.Join(a.faults, "\n  "))
	}
}

func (a *audit) wrong(format string, args ...any) {
	a.faults = append(a.faults, fmt.Sprintf(format, args...))
}

// load reads the rows, and the stream until it has all of their events.
func (a *audit) load(t *testing.T) {
	t.Helper()
	ctx, id := t.Context(), a.s.id
	var last, first int64
	require.NoError(t, a.conn.QueryRow(ctx, "SELECT status, status_reason, last_seq, first_seq FROM sessions WHERE id = $1", id).
		Scan(&a.status, &a.reason, &last, &first))
	rows, err := a.conn.Query(ctx, "SELECT id, status, reason, run_id, on_unknown, ordinal FROM prompts WHERE session_id = $1 ORDER BY ordinal", id)
	require.NoError(t, err)
	prompts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[promptRow])
	require.NoError(t, err)
	a.rows = map[string]promptRow{}
	for _, p := range prompts {
		a.rows[p.ID] = p
	}
	rows, err = a.conn.Query(ctx, "SELECT id, prompt_id, outcome, reason, attempt FROM runs WHERE session_id = $1 ORDER BY started_at", id)
	require.NoError(t, err)
	a.runs, err = pgx.CollectRows(rows, pgx.RowToStructByPos[runRow])
	require.NoError(t, err)
	rows, err = a.conn.Query(ctx, "SELECT seq FROM events WHERE session_id = $1 ORDER BY seq", id)
	require.NoError(t, err)
	seqs, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(t, err)
	for i, seq := range seqs {
		if seq != first+int64(i) {
			a.wrong("event row %d where %d is due", seq, first+int64(i))
			break
		}
	}
	if want := last - first + 1; int64(len(seqs)) < want {
		a.wrong("%d event rows, the session has %d", len(seqs), want)
	}
	eventually(t, 60*time.Second, "the reader has every event", func() error {
		if a.s.stream.last() < last {
			return fmt.Errorf("%d of %d", a.s.stream.last(), last)
		}
		return nil
	})
	a.events = a.s.stream.all(t)
}

// checkStream compares the events of prompts and turns with their rows. Events name runs, and rows
// are claims: a prompt whose sandbox was lost before it reached the agent is claimed again, and its
// run has a turn for each claim.
func (a *audit) checkStream(t *testing.T) {
	t.Helper()
	newest, claims, ended := map[string]string{}, map[string][]string{}, map[string][]string{}
	for _, r := range a.runs {
		claims[session.RunOf(r.ID)] = append(claims[session.RunOf(r.ID)], r.Outcome)
	}
	for _, e := range a.events {
		var d struct {
			RunID, PromptID, Outcome, Status string
			Prompt                           struct{ ID, Status string }
		}
		switch e.Type {
		case "prompt", "turn_start", "turn_end":
			require.NoError(t, json.Unmarshal(e.Data, &d))
		}
		switch e.Type {
		case "prompt":
			newest[d.Prompt.ID] = d.Prompt.Status
		case "turn_start":
			if len(ended[d.RunID]) >= len(claims[d.RunID]) {
				a.wrong("turn_start of run %s after its last turn_end (seq %d)", d.RunID, e.Seq)
			}
		case "turn_end":
			ended[d.RunID] = append(ended[d.RunID], d.Outcome)
		}
	}
	for id, p := range a.rows {
		if newest[id] != p.Status {
			a.wrong("prompt %s is %s, the stream says %q", id, p.Status, newest[id])
		}
	}
	for run, outcomes := range claims {
		if !slices.Equal(ended[run], outcomes) {
			a.wrong("the claims of run %s ended %q, the stream says %q", run, outcomes, ended[run])
		}
	}
}

// checkTransitions compares the chain of transitions with the table and the stream.
func (a *audit) checkTransitions(t *testing.T) {
	t.Helper()
	rows, err := a.conn.Query(t.Context(),
		"SELECT no, from_status, to_status, coalesce(receipt::text, '') FROM session_transitions WHERE session_id = $1 ORDER BY no", a.s.id)
	require.NoError(t, err)
	type transition struct {
		No                int64
		From, To, Receipt string
	}
	chain, err := pgx.CollectRows(rows, pgx.RowToStructByPos[transition])
	require.NoError(t, err)
	at := "initializing"
	var reached []string
	for i, step := range chain {
		if step.No != int64(i+1) || step.From != at || !session.Legal(session.State(step.From), session.State(step.To)) {
			a.wrong("transition %d from %s to %s follows %d to %s", step.No, step.From, step.To, i, at)
		}
		at = step.To
		reached = append(reached, step.To)
		if step.Receipt != "" {
			a.receipts = append(a.receipts, step.Receipt)
		}
	}
	if at != a.status {
		a.wrong("the row says %s, the transitions end at %s", a.status, at)
	}
	if shown := statuses(t, a.events); !slices.Equal(shown, reached) {
		a.wrong("the stream shows %v, the transitions are %v", shown, reached)
	}
	code, view, err := a.s.call("GET", "/api/sessions/"+a.s.id, nil)
	require.NoError(t, err)
	if code != http.StatusOK || view["status"] != a.status {
		a.wrong("GET says %d %v, the row %s", code, view["status"], a.status)
	}
}

// checkPrompts checks the promise of every prompt.
func (a *audit) checkPrompts() {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	runs := map[string]int{} // by prompt, the number of runs that may have reached the agent
	for _, r := range a.runs {
		if r.Outcome != "cancelled" || r.Reason != session.ReasonSandboxLost {
			runs[r.PromptID]++
		}
	}
	for _, p := range a.s.prompts {
		row, ok := a.rows[p.id]
		if p.accepted && !ok {
			a.wrong("prompt %s was accepted and has no row", p.id)
		}
		if !ok {
			continue
		}
		hits := a.s.hits.count(a.s.name(p.id))
		switch row.Status {
		case "completed":
			if hits == 0 {
				a.wrong("prompt %s is completed and never ran", p.id)
			}
		case "failed", "cancelled", "unknown":
		default:
			if a.status != "error" {
				a.wrong("prompt %s is %s", p.id, row.Status)
			}
		}
		switch {
		case row.OnUnknown != "retry" && (hits > 1 || runs[p.id] > 1):
			a.wrong("prompt %s ran %d times in %d runs, its policy is %s", p.id, hits, runs[p.id], row.OnUnknown)
		case hits > max(runs[p.id], 1):
			a.wrong("prompt %s ran %d times in %d runs", p.id, hits, runs[p.id])
		}
		if row.Status == "cancelled" && row.Reason == "session_terminated" && !a.s.stopped {
			a.wrong("prompt %s is cancelled as by a stop, and none was requested", p.id)
		}
	}
}

// checkBlocks compares the blocks with the folded stream, and with the prompts.
func (a *audit) checkBlocks(t *testing.T) {
	t.Helper()
	var folder conversation.Folder
	for _, e := range a.events {
		require.NoError(t, folder.Apply(conversation.EventType(e.Type), e.ConversationID, e.Data))
	}
	folded, err := json.Marshal(folder.Conversation().Threads)
	require.NoError(t, err)
	var want []struct {
		ID     string
		Blocks []any
	}
	require.NoError(t, json.Unmarshal(folded, &want))
	have := a.s.conversations(t, a.s.id)
	if len(want) != len(have) {
		a.wrong("%d conversations, the stream adds up to %d", len(have), len(want))
		return
	}
	users := map[string]int{}
	for i, c := range have {
		if len(c.blocks) != len(want[i].Blocks) {
			a.wrong("conversation %s has %d blocks, the stream adds up to %d", c.id, len(c.blocks), len(want[i].Blocks))
			return
		}
		for j, block := range c.blocks {
			switch block["status"] {
			case "pending", "running", "streaming":
				a.wrong("block %v is open and no turn is", block)
			}
			if block["type"] == "user_message" {
				id, _ := block["promptId"].(string)
				users[id]++
			}
			if !reflect.DeepEqual(any(block), want[i].Blocks[j]) {
				a.wrong("block %v, the stream adds up to %v", block, want[i].Blocks[j])
			}
		}
	}
	for id, p := range a.rows {
		if p.Status == "completed" && users[id] == 0 {
			a.wrong("prompt %s is completed and not among the blocks", id)
		}
	}
}

// checkState compares the workflow's own view with the row.
func (a *audit) checkState(t *testing.T) {
	t.Helper()
	eventually(t, settleWithin, "the workflow agrees with the row", func() error {
		code, view, err := a.s.call("GET", "/api/sessions/"+a.s.id+"/state", nil)
		switch {
		case err != nil:
			return err
		case code == http.StatusNotFound: // terminated, or unloaded
			return nil
		case code != http.StatusOK:
			return fmt.Errorf("%d %v", code, view)
		}
		queue, _ := view["queue"].([]any)
		if view["status"] != a.status || a.status != "error" && len(queue) > 0 || view["runId"] != nil {
			return fmt.Errorf("the row says %s, the workflow %v", a.status, view)
		}
		return nil
	})
}

// checkLedger asks the agent for the file to which every prompt adds a line. Unless a restore
// reported missing files, each completed prompt is in it once.
func (s *subject) checkLedger(t *testing.T) {
	t.Helper()
	s.checkLedgers(t, []*subject{s})
}

// checkLedgers is checkLedger for many sessions at once.
func (r *rig) checkLedgers(t *testing.T, subjects []*subject) {
	t.Helper()
	want := make([][]string, len(subjects))
	var audits []*audit
	conn := r.connect(t)
	defer conn.Close(context.WithoutCancel(t.Context()))
	for i, s := range subjects {
		a := &audit{s: s, conn: conn}
		a.load(t)
		a.checkTransitions(t)
		for _, p := range s.prompts {
			if a.rows[p.id].Status == "completed" {
				want[i] = append(want[i], p.id)
			}
		}
		audits = append(audits, a)
	}
	for _, s := range subjects {
		s.send(t.Context(), "ledger", "", "$ cat ledger")
	}
	for i, s := range subjects {
		got := s.waitPrompt(t, s.id, "ledger", settleWithin)
		require.Equal(t, "completed", got["status"], "%v", got)
		if slices.ContainsFunc(audits[i].receipts, func(receipt string) bool {
			return !strings.Contains(receipt, `"full"`) && !strings.Contains(receipt, `"unverified"`)
		}) {
			continue // the restore has reported it
		}
		lines := s.outputs(t)
		for _, id := range want[i] {
			if n := count(lines, id); n != 1 {
				t.Errorf("session %s: completed prompt %s appears %d times in the workspace's ledger; receipts %v", s.id, id, n, audits[i].receipts)
			}
		}
	}
}

// outputs returns the lines that the demo agent's commands have printed.
func (s *subject) outputs(t *testing.T) (lines []string) {
	t.Helper()
	for _, block := range s.conversations(t, s.id)[0].blocks {
		if result, ok := block["output"].(object); ok {
			output, _ := result["output"].(string)
			lines = append(lines, strings.Split(output, "\n")...)
		}
	}
	return lines
}

func count(lines []string, line string) (n int) {
	for _, l := range lines {
		if l == line {
			n++
		}
	}
	return n
}

// nothingIsLeft waits until no sandbox of the rig runs, no snapshot of an ended session is kept, and
// the local Modal has no image but base images. All sessions must have been stopped.
func (r *rig) nothingIsLeft(t *testing.T, within time.Duration) {
	t.Helper()
	conn := r.connect(t)
	drv, err := modalsandbox.New(r.modalConfig(t))
	require.NoError(t, err)
	defer drv.Close()
	eventually(t, within, "nothing is left of the sessions", func() error {
		var open, kept int
		if err := conn.QueryRow(t.Context(), `SELECT
			(SELECT count(*) FROM sandboxes WHERE ended_at IS NULL),
			(SELECT count(*) FROM snapshots n JOIN sessions s ON s.id = n.session_id WHERE s.status = 'terminated' AND n.deleted_at IS NULL)`,
		).Scan(&open, &kept); err != nil {
			return err
		}
		listed, err := driver.Collect(drv.List(t.Context(), map[string]string{}))
		if err != nil {
			return err
		}
		var running []string
		for _, l := range listed {
			running = append(running, l.Tags[sandbox.TagSession])
		}
		images, err := r.images()
		if err != nil {
			return err
		}
		if open+kept+len(running)+len(images) > 0 {
			return fmt.Errorf("%d sandbox rows open, %d snapshots kept, sandboxes of %v, images %v", open, kept, running, images)
		}
		if tree := r.sandboxTree(); len(tree) > 0 { // it reads all processes of the machine
			return fmt.Errorf("processes of sandboxes: %v", tree)
		}
		return nil
	})
}

// images returns the recorded images of sessions at the local Modal, without base images, which are
// built from a recipe or by a sandbox with a role.
func (s *stack) images() ([]string, error) {
	var out []string
	dir := filepath.Join(s.dir, "modal", "records", "images")
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var record struct {
			ID, Recipe string
			Tags       map[string]string
		}
		if err := json.Unmarshal(raw, &record); err != nil {
			return err
		}
		if record.Recipe == "" && record.Tags[sandbox.TagRole] == "" {
			out = append(out, record.ID)
		}
		return nil
	})
	return out, err
}
