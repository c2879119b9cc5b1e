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
	"github.com/overwinter-dev/overwinter/internal/run"
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

// news counts the files that are not stored yet.
func (m *queueModel) news(files []attachment.Attachment) (n int) {
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

func (m *queueModel) submit(rt *rapid.T) { m.submitAs(rt, session.Followup) }

func (m *queueModel) collect(rt *rapid.T) { m.submitAs(rt, session.Collect) }

func (m *queueModel) steer(rt *rapid.T) { m.submitAs(rt, session.Steer) }

func (m *queueModel) submitAs(rt *rapid.T, mode session.Mode) {
	content, files := fmt.Sprintf("prompt %d", len(m.prompts)+1), drawFiles(rt)
	submitted := session.Prompt{ID: session.NewID(session.PromptPrefix), SessionID: m.id, Content: content, Mode: mode, CollectFor: time.Hour, Attachments: files}
	stored, position, created, err := m.PromptSubmit(m.ctx, submitted)
	if m.news(files) > m.room {
		require.Equal(rt, failure.LimitReached, failure.CodeOf(err), "%v", err)
		_, err = m.PromptGet(m.ctx, m.id, submitted.ID)
		require.Equal(rt, failure.NoPrompt, failure.CodeOf(err), "%v", err)
		return
	}
	require.NoError(rt, err)
	m.room -= m.news(files)
	for _, f := range files {
		m.stored[f.ID] = f
	}
	require.True(rt, created)
	if m.held {
		require.False(rt, stored.Notify || stored.Attended)
	}
	p := &modelPrompt{
		id: stored.ID, content: content, submitted: content, ordinal: stored.Ordinal, status: session.PromptQueued, mode: mode, files: files,
	}
	waiting := m.waiting()
	switch head := m.open(); {
	case mode == session.Steer && len(waiting) > 0 && waiting[0].mode == session.Steer && waiting[0].rank < 0:
		p.rank = waiting[0].rank
	case mode == session.Steer && len(waiting) > 0:
		p.rank = min(0, waiting[0].rank) - 1
	case mode == session.Steer:
		p.rank = -1
	case mode == session.Collect && head != nil && m.filesWith(head)+len(files) <= attachment.MaxPromptFiles:
		p.joined = head.id
	default:
		m.close()
	}
	p.open = mode == session.Collect
	m.prompts = append(m.prompts, p)
	interrupts := mode == session.Steer && m.run != "" && !m.held
	if interrupts && len(files) == 0 && m.attempt && m.aborted == "" && !slices.ContainsFunc(waiting, func(o *modelPrompt) bool {
		return o.mode == session.Steer && o.rank < 0 && o.steers != m.run
	}) && m.begun() < session.MaxSteered {
		p.steers, interrupts = m.run, false
	}
	require.False(rt, stored.Interrupts && !interrupts)
	if interrupts && m.aborted == "" {
		m.aborted = session.ReasonSteered
	}
	require.EqualValues(rt, 1+slices.Index(m.waiting(), p), position)
}

// filesWith counts the files of a prompt and of those that are joined to it.
func (m *queueModel) filesWith(p *modelPrompt) int {
	n := len(p.files)
	for _, j := range m.joinedTo(p, session.PromptQueued) {
		n += len(j.files)
	}
	return n
}

// gets checks that the agent gets the files of the prompt and of those that are joined to it: each
// once, in order, under a unique name.
func (m *queueModel) gets(rt *rapid.T, p *modelPrompt, status session.PromptStatus, got []attachment.Attachment) {
	var want, ids []string
	names := map[string]bool{}
	for _, j := range append([]*modelPrompt{p}, m.joinedTo(p, status)...) {
		for _, f := range j.files {
			if !slices.Contains(want, f.ID) {
				want = append(want, f.ID)
			}
		}
	}
	for _, a := range got {
		ids = append(ids, a.ID)
		name := strings.ToLower(a.Name)
		require.False(rt, names[name], "%s is there twice", a.Name)
		require.Empty(rt, attachment.CheckName(a.Name))
		names[name] = true
	}
	require.Equal(rt, want, ids)
}

// collectAndRun collects prompts and starts the first one.
func (m *queueModel) collectAndRun(rt *rapid.T) {
	m.collect(rt)
	m.collect(rt)
	m.lapse(rt)
	m.begin(rt)
	m.takeSteers(rt)
}

// steerTheTurn sends prompts to a turn whose agent accepts them.
func (m *queueModel) steerTheTurn(rt *rapid.T) {
	m.begin(rt)
	m.takeSteers(rt)
	m.steer(rt)
	m.takeSteer(rt)
}

// begun counts the prompts that were meant for the turn in progress.
func (m *queueModel) begun() (n int) {
	for _, p := range m.prompts {
		if p.steers == m.run {
			n++
		}
	}
	return n
}

// takeSteers makes the attempt report that its agent accepts prompts during the turn.
func (m *queueModel) takeSteers(rt *rapid.T) {
	if m.run == "" || m.attempt {
		return
	}
	claim, err := m.RunGet(m.ctx, m.run)
	require.NoError(m.t, err)
	if claim.Token == "" {
		start, err := m.RunAttach(m.ctx, m.run, "t", run.Dispatch{No: 1, Attempt: 1})
		require.NoError(m.t, err)
		m.gets(rt, m.running, session.PromptProcessing, start.Prompt.Attachments)
	}
	m.steers(m.t, m.run, "t", m.frames)
	m.attempt, m.frames = true, m.frames+1
}

// takeSteer makes the attempt take the next prompt for the turn.
func (m *queueModel) takeSteer(rt *rapid.T) {
	if !m.attempt {
		return
	}
	var want, got []string
	for _, p := range m.given(m.running, session.PromptProcessing) {
		want = append(want, p.id)
	}
	for _, p := range m.waiting() {
		if p.steers == m.run && !m.held && m.aborted == "" {
			p.status, p.reason, p.joined = session.PromptProcessing, "", m.running.id
			want = append(want, p.id)
			break
		}
	}
	prompts, err := m.SteersTake(m.ctx, run.SteerTake{RunID: m.run, Token: "t", More: true})
	require.NoError(rt, err)
	for _, p := range prompts {
		got = append(got, p.ID)
		require.Empty(rt, p.Attachments, "files are placed before a turn")
	}
	require.ElementsMatch(rt, want, got)
}

// verdict reports that the agent has accepted a prompt, sometimes from an attempt that does not
// have the run.
func (m *queueModel) verdict(rt *rapid.T) {
	p := m.any(rt)
	if p == nil || m.run == "" {
		return
	}
	token := rapid.SampledFrom([]string{"t", "t", "another"}).Draw(rt, "token")
	require.NoError(rt, m.SteersSettle(m.ctx, run.SteerTaken{RunID: m.run, Token: token, PromptIDs: []string{p.id}}))
	if m.attempt && token == "t" && p.steers == m.run && p.status == session.PromptProcessing {
		p.taken = true
	}
}

// lapse lets the collection time of prompts pass. An api may notice it or not.
func (m *queueModel) lapse(rt *rapid.T) {
	m.sql(m.t, `UPDATE prompts SET collect_until = now() - interval '1 second' WHERE session_id = $1 AND collect_until > now()`, m.id)
	m.close()
	if rapid.Bool().Draw(rt, "noticed") {
		next, left, err := m.PromptsCollected(m.ctx, m.id)
		require.NoError(rt, err)
		require.Zero(rt, left)
		if next != nil {
			require.False(rt, m.held || m.run != "")
			require.Equal(rt, m.first().id, next.ID)
		}
	}
}

// submitAgain repeats the request that submitted a prompt, or sends a different one with its id.
func (m *queueModel) submitAgain(rt *rapid.T) {
	p := m.any(rt)
	if p == nil {
		return
	}
	stored, position, created, err := m.PromptSubmit(m.ctx, session.Prompt{ID: p.id, SessionID: m.id, Content: p.submitted, Mode: p.mode, Attachments: p.files})
	require.NoError(rt, err)
	require.False(rt, created)
	require.Equal(rt, p.content, stored.Content)
	require.EqualValues(rt, 1+slices.Index(m.waiting(), p), position)
	other := session.Prompt{ID: p.id, SessionID: m.id, Content: p.submitted, Mode: p.mode, Attachments: p.files}
	if rapid.Bool().Draw(rt, "other files") {
		other.Attachments = append(slices.Clone(p.files), named("another.png", "4"))
	} else {
		other.Content += "?"
	}
	_, _, _, err = m.PromptSubmit(m.ctx, other)
	require.Equal(rt, failure.PromptExists, failure.CodeOf(err), "%v", err)
}

func (m *queueModel) withdraw(rt *rapid.T) {
	if p := m.any(rt); p != nil {
		_, err := m.PromptWithdraw(m.ctx, m.id, p.id)
		if p.changes(rt, err) {
			p.end(session.PromptCancelled, session.ReasonWithdrawn)
			for i, j := range m.joinedTo(p, session.PromptQueued) {
				if j.joined = ""; i > 0 {
					j.joined = m.joinedHead.id
				} else {
					m.joinedHead = j
				}
			}
		}
	}
}

func (m *queueModel) replace(rt *rapid.T) {
	if p := m.any(rt); p != nil {
		content := p.submitted + rapid.SampledFrom([]string{"", " or so", " or else"}).Draw(rt, "content")
		replaced, err := m.PromptReplace(m.ctx, m.id, p.id, content)
		if p.changes(rt, err) {
			p.content = content
			require.Equal(rt, content, replaced.Content)
		}
	}
}

func (m *queueModel) promote(rt *rapid.T) {
	if p := m.any(rt); p != nil {
		_, err := m.PromptPromote(m.ctx, m.id, p.id)
		if !p.changes(rt, err) {
			return
		}
		if first, head := m.first(), m.head(p); first != nil && first != head {
			rank := min(0, m.waiting()[0].rank) - 1
			for _, j := range append(m.joinedTo(head, session.PromptQueued), head) {
				j.rank = rank
			}
		}
		if p.open {
			m.close()
		}
	}
}

func (m *queueModel) clear(rt *rapid.T) {
	var want []string
	for _, p := range m.prompts {
		if p.status == session.PromptQueued {
			want = append(want, p.id)
			p.end(session.PromptCancelled, session.ReasonCleared)
		}
	}
	cleared, err := m.PromptsClear(m.ctx, m.id)
	require.NoError(rt, err)
	require.ElementsMatch(rt, want, cleared)
}

func (m *queueModel) hold(rt *rapid.T) {
	_, err := m.SessionHold(m.ctx, m.id, "")
	require.NoError(rt, err)
	m.held = true
}

func (m *queueModel) unhold(rt *rapid.T) {
	_, next, err := m.SessionRelease(m.ctx, m.id)
	require.NoError(rt, err)
	if next != nil {
		require.True(rt, m.held)
		require.Equal(rt, m.first().id, next.ID)
	}
	m.held = false
}

// begin claims a prompt like the workflow, which may believe that another one is first.
func (m *queueModel) begin(rt *rapid.T) {
	p := m.any(rt)
	if first := m.first(); first != nil && rapid.Bool().Draw(rt, "first") {
		p = first
	}
	if p == nil {
		return
	}
	run := session.NewID(session.RunPrefix)
	v, err := m.RunBegin(m.ctx, m.id, p.id, run, 1)
	require.NoError(rt, err)
	starts := p.status == session.PromptQueued && m.run == "" && !m.held && m.first() == p
	require.Equal(rt, starts, v.Granted)
	switch {
	case starts:
		m.start(p, run)
	case p.status == session.PromptQueued && m.run != "":
		require.Equal(rt, m.run, v.HeldBy)
	case p.status == session.PromptQueued && (m.held || m.first() == nil):
		require.True(rt, v.Held)
	case p.status == session.PromptQueued:
		require.Equal(rt, &session.QueuedPrompt{ID: m.first().id, Ordinal: m.first().ordinal, Rank: m.first().rank}, v.Earlier)
	}
}

// claim claims the next prompt like an attendant.
func (m *queueModel) claim(rt *rapid.T) {
	claimed, err := m.RunClaim(session.WithWorkflowRun(m.ctx, "w1"), run.Claim{
		SessionID: m.id, Attendant: "a1", Generation: 1, RunID: session.NewID(session.RunPrefix), Token: "t", Attempt: 1,
	})
	require.NoError(rt, err)
	attends := m.attendant != "" && m.run == ""
	require.Equal(rt, attends, claimed.Attended)
	if !attends || m.held || m.first() == nil {
		require.Nil(rt, claimed.Start)
		return
	}
	require.Equal(rt, m.first().id, claimed.Start.Prompt.ID)
	content := m.first().content
	for _, j := range m.joinedTo(m.first(), session.PromptQueued) {
		content += "\n\n" + j.content
	}
	require.Equal(rt, content, claimed.Start.Prompt.Content)
	m.gets(rt, m.first(), session.PromptQueued, claimed.Start.Prompt.Attachments)
	attendant := m.attendant
	m.start(m.first(), claimed.Start.Run.ID)
	m.attendant = attendant
}

func (m *queueModel) start(p *modelPrompt, run string) {
	for _, j := range append(m.joinedTo(p, session.PromptQueued), p) {
		j.status, j.reason = session.PromptProcessing, ""
	}
	p.joined, p.steers = "", ""
	m.run, m.running, m.attendant = run, p, ""
}

func (m *queueModel) abort(rt *rapid.T) {
	done, err := m.CommandSubmit(m.ctx, session.Command{SessionID: m.id, Kind: session.CommandAbort})
	require.NoError(rt, err)
	require.Equal(rt, m.run != "", done.Command != nil)
	if m.run != "" && m.aborted == "" {
		m.aborted = session.ReasonAborted
	}
}

// finish ends the run in progress, with each outcome.
func (m *queueModel) finish(rt *rapid.T) {
	if m.run == "" {
		return
	}
	outcomes := []session.Outcome{session.OutcomeCompleted, session.OutcomeCompleted, session.OutcomeFailed, session.OutcomeUnknown}
	if m.aborted != "" {
		outcomes = append(outcomes, session.OutcomeCancelled, session.OutcomeCancelled)
	}
	outcome := rapid.SampledFrom(outcomes).Draw(rt, "outcome")
	reason := ""
	if outcome == session.OutcomeCancelled {
		reason = session.ReasonAborted // as reported by the agent
	}
	requeue := outcome == session.OutcomeUnknown && rapid.Bool().Draw(rt, "requeue")
	read := outcome != session.OutcomeUnknown && rapid.Bool().Draw(rt, "read")
	ended, err := m.RunEnd(m.ctx, run.Ending{RunID: m.run, Outcome: outcome, Reason: reason, Requeue: requeue, Read: read, LookFor: "w1", Attend: "a1"})
	require.NoError(rt, err)
	m.read = read
	attended := outcome == session.OutcomeCompleted && m.aborted == ""
	switch {
	case outcome == session.OutcomeCancelled, outcome == session.OutcomeUnknown && m.aborted != "":
		m.ends(session.PromptCancelled, m.aborted)
	case requeue:
		m.ends(session.PromptQueued, "")
	default:
		m.ends(outcome.PromptStatus(), "")
	}
	require.Equal(rt, attended, ended.Attended)
	m.endRun(attended)
}

// giveBack returns the run in progress, which never reached the agent.
func (m *queueModel) giveBack(rt *rapid.T) {
	if m.run == "" {
		return
	}
	queued, err := m.RunReturn(m.ctx, m.run, session.ReasonSandboxLost, false)
	if m.attempt {
		require.Equal(rt, failure.IllegalState, failure.CodeOf(err), "it has reached the agent: %v", err)
		return
	}
	require.NoError(rt, err)
	require.Equal(rt, m.aborted == "", queued)
	if m.aborted != "" {
		m.ends(session.PromptCancelled, m.aborted)
	} else {
		m.ends(session.PromptQueued, session.ReasonSandboxLost)
	}
	attendant := m.attendant
	m.endRun(false)
	m.attendant = attendant
}

// ends gives the processing prompt a status, together with those that are joined to it and those
// that were given to its turn, except those that the agent is known not to have accepted.
func (m *queueModel) ends(status session.PromptStatus, reason string) {
	for _, p := range m.given(m.running, session.PromptProcessing) {
		if status == session.PromptQueued || m.read && !p.taken {
			p.back()
		} else {
			p.end(status, session.ReasonJoined)
		}
	}
	for _, j := range m.joinedTo(m.running, session.PromptProcessing) {
		if status == session.PromptQueued {
			j.end(status, reason)
		} else {
			j.end(status, session.ReasonCollected)
		}
	}
	m.running.end(status, reason)
}

// back returns a prompt that was given to a turn to its place in the queue.
func (p *modelPrompt) back() {
	p.status, p.reason, p.joined, p.steers, p.taken = session.PromptQueued, "", "", "", false
}

func (m *queueModel) endRun(attended bool) {
	m.run, m.running, m.aborted, m.attendant, m.attempt, m.frames, m.read = "", nil, "", "", false, 0, false
	if attended {
		m.attendant = "a1"
	}
}

// retry queues a prompt whose outcome is unknown again.
func (m *queueModel) retry(rt *rapid.T) {
	p := m.any(rt)
	if p == nil || p.status != session.PromptUnknown {
		return
	}
	_, _, err := m.PromptResolve(m.ctx, session.Resolve{SessionID: m.id, PromptID: p.id, Action: session.ResolutionRetry})
	if p.joined != "" {
		require.Equal(rt, failure.IllegalState, failure.CodeOf(err), "%v", err)
		return
	}
	require.NoError(rt, err)
	for _, s := range m.given(p, session.PromptUnknown) {
		s.back()
	}
	for _, j := range append(m.joinedTo(p, session.PromptUnknown), p) {
		j.end(session.PromptQueued, "")
	}
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
			"promote": m.promote, "promote another": m.promote, "clear": m.clear, "hold": m.hold, "release": m.unhold,
			"begin": m.begin, "begin another": m.begin, "claim": m.claim, "claim again": m.claim, "end": m.finish, "return": m.giveBack,
			"abort": m.abort, "retry": m.retry, "": m.check,
			"take prompts": m.takeSteers, "steer again": m.steer, "take": m.takeSteer, "take more": m.takeSteer, "verdict": m.verdict, "verdict again": m.verdict,
			"collect and run": m.collectAndRun, "steer the turn": m.steerTheTurn,
		})
		m.checkStored(rt)
	})
}
