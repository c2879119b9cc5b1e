package postgres_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// modelPrompt is the expected state of a prompt.
type modelPrompt struct {
	id, content, submitted string
	ordinal, rank          int64
	status                 session.PromptStatus
	reason                 string
	joined                 string // the prompt that it is joined to
	mode                   session.Mode
	open                   bool // others may join it
	ends                   int  // number of outcomes that it has received

	steers string // the run for whose turn it is meant
	taken  bool   // accepted by the agent of that run

	files []attachment.Attachment
}

// queueModel is the expected queue of a session. Every command is applied to the model and to the
// database.
type queueModel struct {
	*harness
	t         *testing.T
	prompts   []*modelPrompt
	run       string // in progress; "" for none
	running   *modelPrompt
	held      bool
	aborted   string // the reason of a pending abort of the run; "" for none
	attempt   bool   // gives its agent prompts during the turn
	frames    int64  // committed frames of the run
	attendant string

	joinedHead *modelPrompt // replaces one that was withdrawn
	read       bool         // all frames of the run were read

	stored map[string]attachment.Attachment // attachments of prompts
	room   int                              // remaining capacity
}

// drawFiles draws the attachments of a prompt: mostly none, some that other prompts also have, and
// occasionally more than joined prompts may have together.
func drawFiles(rt *rapid.T) (files []attachment.Attachment) {
	n := rapid.SampledFrom([]int{0, 0, 0, 0, 1, 2, 9}).Draw(rt, "files")
	for i := range n {
		name := fmt.Sprintf("%d.png", i)
		if i == 0 {
			name = rapid.SampledFrom([]string{name, "A.png", "a.png", strings.Repeat("a", attachment.MaxNameBytes)}).Draw(rt, "name")
		}
		files = append(files, named(name, rapid.SampledFrom([]string{"1", "2", "3"}).Draw(rt, "content")))
	}
	return files
}

// countNew counts the files that are not stored yet.
func (m *queueModel) countNew(files []attachment.Attachment) (n int) {
	for _, f := range files {
		if _, known := m.stored[f.ID]; !known {
			n++
		}
	}
	return n
}

// waiting returns the queued prompts in order.
func (m *queueModel) waiting() (queued []*modelPrompt) {
	for _, p := range m.prompts {
		if p.status == session.PromptQueued {
			queued = append(queued, p)
		}
	}
	slices.SortFunc(queued, func(a, b *modelPrompt) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.ordinal, b.ordinal))
	})
	return queued
}

// first returns the next prompt. It skips those that are being collected.
func (m *queueModel) first() *modelPrompt {
	for _, p := range m.waiting() {
		if !p.open {
			return p
		}
	}
	return nil
}

// joinedTo returns the prompts that are joined to p and have a status.
func (m *queueModel) joinedTo(p *modelPrompt, status session.PromptStatus) (joined []*modelPrompt) {
	for _, j := range m.prompts {
		if j.joined == p.id && j.status == status && j.steers == "" {
			joined = append(joined, j)
		}
	}
	return joined
}

// given returns the prompts that are or were given to the turn of p and have a status.
func (m *queueModel) given(p *modelPrompt, status session.PromptStatus) (given []*modelPrompt) {
	for _, s := range m.prompts {
		if s.joined == p.id && s.steers != "" && s.status == status {
			given = append(given, s)
		}
	}
	return given
}

// head returns the prompt with which the agent gets p.
func (m *queueModel) head(p *modelPrompt) *modelPrompt {
	for _, h := range m.prompts {
		if h.id == p.joined {
			return h
		}
	}
	return p
}

func (m *queueModel) open() *modelPrompt {
	for _, p := range m.prompts {
		if p.open && p.joined == "" {
			return p
		}
	}
	return nil
}

func (m *queueModel) close() {
	for _, p := range m.prompts {
		p.open = false
	}
}

func (p *modelPrompt) end(status session.PromptStatus, reason string) {
	p.status, p.reason, p.open = status, reason, false
	if status.Final() {
		p.ends++
	}
}

// any draws a prompt; nil if there is none.
func (m *queueModel) any(rt *rapid.T) *modelPrompt {
	if len(m.prompts) == 0 {
		return nil
	}
	return rapid.SampledFrom(m.prompts).Draw(rt, "prompt")
}

// changes checks the error of a command that only applies to queued prompts.
func (p *modelPrompt) changes(rt *rapid.T, err error) bool {
	if p.status == session.PromptQueued {
		require.NoError(rt, err)
		return true
	}
	require.Equal(rt, failure.NotQueued, failure.CodeOf(err), "%v", err)
	return false
}

// check compares the rows with the model.
func (m *queueModel) check(rt *rapid.T) {
	for _, p := range m.prompts {
		row, err := m.PromptGet(m.ctx, m.id, p.id)
		require.NoError(rt, err)
		found := modelPrompt{
			id: row.ID, content: row.Content, submitted: p.submitted, ordinal: row.Ordinal, rank: row.Rank,
			status: row.Status, reason: row.Reason, ends: p.ends,
			joined: row.JoinedTo, mode: row.Mode, open: row.CollectUntil.After(time.Now()), steers: p.steers, taken: p.taken,
			files: p.files,
		}
		require.Equal(rt, *p, found)
		require.Equal(rt, resource.Attachments(p.files), resource.Attachments(row.Attachments))
	}
	look, err := m.SessionLook(m.ctx, m.id, "w1")
	require.NoError(rt, err)
	var want []session.QueuedPrompt
	for _, p := range m.waiting() {
		if p.open || p.joined != "" {
			continue
		}
		want = append(want, session.QueuedPrompt{ID: p.id, Ordinal: p.ordinal, Rank: p.rank})
	}
	if m.held {
		want = nil
	}
	require.Equal(rt, want[:min(len(want), session.MaxWaitingSeen)], look.Waiting)
	s, err := m.SessionGet(m.ctx, m.id)
	require.NoError(rt, err)
	require.Equal(rt, m.held, s.Queue.Hold.Held())
	require.EqualValues(rt, len(m.waiting()), s.Queue.Queued)
	m.compare(rt)
}

// checkStored checks that the files of all prompts, including cancelled ones, are stored with the
// session, and no others.
func (m *queueModel) checkStored(rt *rapid.T) {
	for id, f := range m.stored {
		got, err := m.AttachmentGet(m.ctx, m.id, id)
		require.NoError(rt, err)
		require.Equal(rt, f, got)
	}
	require.Len(rt, m.stored, m.count(m.t, fmt.Sprintf("attachments WHERE session_id = '%s' AND NOT starts_with(id, 'full_')", m.id)))
}

// compare compares the state that a reader derives from the events with the model: the queue in its
// order, and each outcome of each prompt exactly once.
func (m *queueModel) compare(rt *rapid.T) {
	var queue event.Queue
	held, ends := false, map[string]int{}
	for _, e := range m.events(m.t) {
		switch e.Type {
		case event.TypeQueue:
			data := queueOf(m.t, e)
			queue.Apply(data)
			held = data.Held
		case event.TypePrompt:
			if p := decodePrompt(m.t, e); p.Status.Final() {
				ends[p.ID]++
			}
		}
	}
	require.Equal(rt, m.held, held)
	var want, got []string
	if m.running != nil {
		want = append(want, m.running.id)
		for _, j := range append(m.joinedTo(m.running, session.PromptProcessing), m.given(m.running, session.PromptProcessing)...) {
			want = append(want, j.id)
		}
	}
	processing := len(want)
	for _, p := range m.waiting() {
		want = append(want, p.id)
	}
	for _, item := range queue.Items() {
		got = append(got, item.PromptID)
	}
	require.Len(rt, got, len(want))
	require.ElementsMatch(rt, want[:processing], got[:processing])
	require.Equal(rt, want[processing:], got[processing:])
	for _, p := range m.prompts {
		require.Equal(rt, p.ends, ends[p.id], "%s is %s", p.id, p.status)
	}
}

// TestQueuesFollowTheirModel draws commands for the queue of a session, claims and ends of runs, and compares the rows and the events
// with a model after each.
func TestQueuesFollowTheirModel(t *testing.T) {
	t.Parallel()
	shared := setup(t)
	rapid.Check(t, func(rt *rapid.T) {
		b := &harness{DB: shared.DB, url: shared.url, ctx: shared.ctx}
		b.id = b.session(t)
		_, err := b.SessionOpen(b.ctx, b.id, "w1")
		require.NoError(rt, err)
		b.running(t)
		m := &queueModel{harness: b, t: t, stored: map[string]attachment.Attachment{}, room: attachment.MaxPromptsFiles}
		if rapid.IntRange(0, 3).Draw(rt, "full") == 0 {
			m.room = 5
			b.sql(t, "INSERT INTO attachments (session_id, id, origin, media_type, bytes, content, created_at) "+
				"SELECT $1, 'full_' || i, 'prompt', 'text/plain', 1, 'x', now() FROM generate_series(1, $2) i", b.id, attachment.MaxPromptsFiles-m.room)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"submit": m.submit, "submit more": m.submit, "collect": m.collect, "collect more": m.collect, "steer": m.steer, "lapse": m.lapse, "submit again": m.submitAgain, "withdraw": m.withdraw, "replace": m.replace,
			"promote": m.promote, "promote another": m.promote, "clear": m.clear, "hold": m.hold, "release": m.release,
			"begin": m.begin, "begin another": m.begin, "claim": m.claim, "claim again": m.claim, "end": m.finish, "return": m.requeue,
			"abort": m.abort, "retry": m.retry, "": m.check,
			"take prompts": m.takeSteers, "steer again": m.steer, "take": m.takeSteer, "take more": m.takeSteer, "verdict": m.verdict, "verdict again": m.verdict,
			"collect and run": m.collectAndRun, "steer the turn": m.steerTheTurn,
		})
		m.checkStored(rt)
	})
}
