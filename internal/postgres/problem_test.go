package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/problem"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestProblemIsInLog(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.ProblemReport(t.Context(), b.id, problem.SyncFailed, "the disk\x00 is full"))
	events := b.events(t)
	last := events[len(events)-1]
	require.Equal(t, "error", last.Type)
	require.JSONEq(t, `{"code":"sync_failed","message":"the disk� is full"}`, string(last.Data))
	requireCode(t, failure.NoSession, b.ProblemReport(t.Context(), "ses_none", "x", "y"))
}

func TestRefusedConnectionsAreInLog(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	run := b.begin(t, b.submit(t, "x"))
	require.NoError(t, b.NetworkRecord(t.Context(), b.id, run, []session.Refusal{
		{Host: "rebound.example\x00", IP: "127.0.0.1", Port: 80, Protocol: "tcp", Verdict: "refused", Count: 3},
		{Protocol: "udp", Verdict: "refused", Count: 1},
	}))
	events := b.events(t)
	events = events[len(events)-2:]
	require.Equal(t, []string{"network", "network"}, []string{events[0].Type, events[1].Type})
	require.Equal(t, run, events[0].RunID)
	require.JSONEq(t, `{"host":"rebound.example\ufffd","ip":"127.0.0.1","port":80,"protocol":"tcp","verdict":"refused","count":3}`, string(events[0].Data))
	require.JSONEq(t, `{"ip":"","port":0,"protocol":"udp","verdict":"refused","count":1}`, string(events[1].Data))
	requireCode(t, failure.NoSession, b.NetworkRecord(t.Context(), "ses_none", run, []session.Refusal{{}}))
}

func TestNetworkEventsOfRunAreBoundedAcrossAttempts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	count := func(run string) (n int) {
		for _, e := range b.events(t) {
			if e.Type == "network" && e.RunID == run {
				n++
			}
		}
		return n
	}
	b.running(t)
	runID := b.begin(t, b.submit(t, "x"))
	for range 3 { // each attempt restarts its count
		require.NoError(t, b.NetworkRecord(t.Context(), b.id, runID, make([]session.Refusal, 60)))
	}
	require.Equal(t, 100, count(runID))
	_, err := b.RunEnd(t.Context(), run.Ending{RunID: runID, Token: "t1", Outcome: session.OutcomeCompleted})
	require.NoError(t, err)
	next := b.begin(t, b.submit(t, "y"))
	require.NoError(t, b.NetworkRecord(t.Context(), b.id, next, make([]session.Refusal, 1)))
	require.Equal(t, 1, count(next))
}

func TestProgressOfSetupIsInLog(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.SetupRecord(t.Context(), b.id, "clone", "started"))
	events := b.events(t)
	last := events[len(events)-1]
	require.Equal(t, "setup", last.Type)
	require.JSONEq(t, `{"stage":"clone","status":"started"}`, string(last.Data))
	require.NoError(t, b.SetupRecord(t.Context(), b.id, "clone", "started"))
	require.Len(t, b.events(t), len(events), "another attempt")
	require.NoError(t, b.SetupRecord(t.Context(), b.id, "clone", "failed"))
	require.NoError(t, b.SetupRecord(t.Context(), b.id, "clone", "started"))
	require.Len(t, b.events(t), len(events)+2, "after a correction")
	requireCode(t, failure.NoSession, b.SetupRecord(t.Context(), "ses_none", "clone", "started"))
}
