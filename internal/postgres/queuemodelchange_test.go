package postgres_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func (m *queueModel) submit(rt *rapid.T) { m.submitAs(rt, session.Followup) }

func (m *queueModel) collect(rt *rapid.T) { m.submitAs(rt, session.Collect) }

func (m *queueModel) steer(rt *rapid.T) { m.submitAs(rt, session.Steer) }

func (m *queueModel) submitAs(rt *rapid.T, mode session.Mode) {
	content, files := fmt.Sprintf("prompt %d", len(m.prompts)+1), drawFiles(rt)
	submitted := session.Prompt{ID: session.NewID(session.PromptPrefix), SessionID: m.id, Content: content, Mode: mode, CollectFor: time.Hour, Attachments: files}
	stored, position, created, err := m.PromptSubmit(m.ctx, submitted)
	if m.countNew(files) > m.room {
		require.Equal(rt, failure.LimitReached, failure.CodeOf(err), "%v", err)
		_, err = m.PromptGet(m.ctx, m.id, submitted.ID)
		require.Equal(rt, failure.NoPrompt, failure.CodeOf(err), "%v", err)
		return
	}
	require.NoError(rt, err)
	m.room -= m.countNew(files)
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

func (m *queueModel) release(rt *rapid.T) {
	_, next, err := m.SessionRelease(m.ctx, m.id)
	require.NoError(rt, err)
	if next != nil {
		require.True(rt, m.held)
		require.Equal(rt, m.first().id, next.ID)
	}
	m.held = false
}
