package postgres_test

import (
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

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
		start, err := m.RunAttach(m.ctx, m.run, "t", run.Dispatch{No: 1, Attempt: 1}, nil)
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
	ended, err := m.RunEnd(m.ctx, run.Ending{RunID: m.run, Outcome: outcome, Reason: reason, Requeue: requeue, Read: read, RecheckFor: "w1", Attend: "a1"})
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

// requeue returns the run in progress, which never reached the agent.
func (m *queueModel) requeue(rt *rapid.T) {
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
