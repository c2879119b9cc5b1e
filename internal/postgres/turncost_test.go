package postgres_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/bundle"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/image"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// cost is the load of a call on Postgres.
type cost struct{ Statements, RoundTrips int64 }

// TestStatementsPerTurn counts the statements and round trips of the writes of a turn. Each round
// trip wakes a process on both sides and delays the session's lock. If a change needs a different
// number, change it here and explain it in the commit: every prompt incurs this cost.
func TestStatementsPerTurn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	proxy := newCountingProxy(t, b.url)
	db, err := postgres.Open(b.ctx, proxy.url, postgres.Options{})
	require.NoError(t, err)
	t.Cleanup(db.Close)

	count := func(do func()) cost {
		statements, trips := proxy.statements.Load(), proxy.roundTrips.Load()
		do()
		return cost{proxy.statements.Load() - statements, proxy.roundTrips.Load() - trips}
	}
	_, err = db.SessionOpen(b.ctx, b.id, "workflow-run")
	require.NoError(t, err)
	costs := map[string]cost{}
	size := int64(0) // of the transcript
	frame := 0       // number of the block
	for range 3 {    // the first calls prepare statements
		var prompt session.Prompt
		costs["PromptSubmit"] = count(func() {
			prompt, _, _, err = db.PromptSubmitIf(b.ctx, session.Prompt{ID: session.NewID(session.PromptPrefix), SessionID: b.id, Content: "hello"}, session.Needs{
				Names: []string{"ANTHROPIC_API_KEY"}, Met: func(string, []string) bool { return true },
			})
			require.NoError(t, err)
		})
		runID := session.NewID(session.RunPrefix)
		costs["RunBegin"] = count(func() {
			verdict, err := db.RunBegin(b.ctx, b.id, prompt.ID, runID, 1)
			require.NoError(t, err)
			require.True(t, verdict.Granted)
		})
		costs["RunAttach"] = count(func() {
			_, err := db.RunAttach(b.ctx, runID, "token", run.Dispatch{No: 1, Attempt: 1}, nil)
			require.NoError(t, err)
		})
		costs["EventsTryAppend"] = count(func() { // other than of a single delta
			frame++
			block, err := conversation.Encode(conversation.BlockComplete{Block: conversation.Block{
				ID: fmt.Sprintf("b%d", frame), Type: conversation.AssistantText, Status: conversation.Complete,
			}})
			require.NoError(t, err)
			verdicts, err := db.EventsTryAppend(b.ctx, []eventlog.Append{{
				SessionID: b.id, RunID: runID, Generation: 1, Token: "token", LastFrame: 0, State: []byte("state"),
				Events: []eventlog.Draft{{Type: string(conversation.EventBlockComplete), ConversationID: conversation.Main, Data: block}},
			}})
			require.NoError(t, err)
			require.Equal(t, []error{nil}, verdicts)
		})
		segments := []transcript.Segment{{SessionID: b.id, RunID: runID, Path: "a.jsonl", Version: 1, Offset: size, Data: []byte("line\n")}}
		size += 5
		costs["TranscriptAppend"] = count(func() { require.NoError(t, db.TranscriptAppend(b.ctx, segments)) })
		costs["RunEnd"] = count(func() { // also reads the pending work
			_, err := db.RunEnd(b.ctx, run.Ending{RunID: runID, Token: "token", Outcome: session.OutcomeCompleted, RecheckFor: "workflow-run"})
			require.NoError(t, err)
		})
		_, _, _, err := db.PromptSubmit(b.ctx, session.Prompt{ID: session.NewID(session.PromptPrefix), SessionID: b.id, Content: "hello"})
		require.NoError(t, err)
		b.sql(t, "UPDATE sessions SET attendant = 'a1' WHERE id = $1", b.id)
		claim := run.Claim{SessionID: b.id, Attendant: "a1", Generation: 1, RunID: session.NewID(session.RunPrefix), Token: "token", Attempt: 1}
		costs["RunClaim"] = count(func() { // instead of RunBegin and RunAttach
			claimed, err := db.RunClaim(b.ctx, claim)
			require.NoError(t, err)
			require.NotNil(t, claimed.Start)
			runID = claimed.Start.Run.ID
		})
		rest := []transcript.Segment{{SessionID: b.id, RunID: runID, Path: "a.jsonl", Version: 1, Offset: size, Data: []byte("line\n")}}
		size += 5
		frame++
		last := &eventlog.Append{
			SessionID: b.id, RunID: runID, Generation: 1, Token: "token", LastFrame: 0,
			Events: []eventlog.Draft{closed(0, fmt.Sprintf("b%d", frame)), draft("metadata_update", 0, 1, `{}`)},
		}
		costs["RunEnd with transcripts and last frames"] = count(func() { // instead of EventsTryAppend, TranscriptAppend and RunEnd, as turns mostly end
			_, err = db.RunEnd(b.ctx, run.Ending{
				RunID: runID, Token: "token", Outcome: session.OutcomeCompleted, RecheckFor: "workflow-run", Attend: "a1", Segments: rest, Last: last,
			})
			require.NoError(t, err)
		})
		costs["RunClaim of nothing"] = count(func() { // by an attendant, after a notification
			b.sql(t, "UPDATE sessions SET attendant = 'a1' WHERE id = $1", b.id)
			claimed, err := db.RunClaim(b.ctx, claim)
			require.NoError(t, err)
			require.Equal(t, run.Claimed{Attended: true}, claimed)
		})
		costs["EventsRead"] = count(func() { // by each api, after each commit
			page := eventlog.NewPage(&eventlog.Format{Mark: func(*eventlog.Event) bool { return false }}, b.id, 0)
			require.NoError(t, db.EventsRead(b.ctx, []*eventlog.Page{page}))
			bounds, err := page.Found()
			require.NoError(t, err)
			require.Positive(t, bounds.Newest)
		})
		costs["SessionGet"] = count(func() { // by clients that poll
			_, err := db.SessionGet(b.ctx, b.id)
			require.NoError(t, err)
		})
		costs["SessionLook"] = count(func() {
			_, err := db.SessionLook(b.ctx, b.id, "workflow-run")
			require.NoError(t, err)
		})
	}
	require.Equal(t, map[string]cost{
		"PromptSubmit": {Statements: 10, RoundTrips: 2}, // also reads whether the agent's secrets are stored
		"RunBegin":     {Statements: 12, RoundTrips: 2},
		"RunAttach":    {Statements: 9, RoundTrips: 2},
		"RunEnd":       {Statements: 9, RoundTrips: 2},
		"RunEnd with transcripts and last frames": {Statements: 16, RoundTrips: 2},
		"EventsTryAppend":                         {Statements: 7, RoundTrips: 2},
		"RunClaim":                                {Statements: 14, RoundTrips: 2},
		"TranscriptAppend":                        {Statements: 8, RoundTrips: 2},
		"EventsRead":                              {Statements: 2, RoundTrips: 1},
		"RunClaim of nothing":                     {Statements: 10, RoundTrips: 2},
		"SessionGet":                              {Statements: 4, RoundTrips: 1},
		"SessionLook":                             {Statements: 7, RoundTrips: 2},
	}, costs)
}

// TestStatementsPerHibernationAndWake counts the records that a hibernation and a wake wait for one after the other.
func TestStatementsPerHibernationAndWake(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	proxy := newCountingProxy(t, b.url)
	db, err := postgres.Open(b.ctx, proxy.url, postgres.Options{})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	before, err := db.SessionGet(b.ctx, b.id)
	require.NoError(t, err)
	no, generation := before.TransitionNo, before.Generation
	trips := map[string]int64{}
	count := func(what string, do func() error) {
		was := proxy.roundTrips.Load()
		require.NoError(t, do(), what)
		trips[what] = proxy.roundTrips.Load() - was
	}
	transit := func(from, to session.State, event session.Event) {
		no++
		count(string(to), func() error {
			return db.TransitionRecord(b.ctx, session.Transition{
				SessionID: b.id, No: no, From: from, To: to, Event: event, Reason: session.ReasonRequested, Generation: generation,
			})
		})
	}
	for i := range 3 { // the first ones prepare statements
		count("CommandSubmit", func() error {
			_, err := db.CommandSubmit(b.ctx, session.Command{SessionID: b.id, Kind: session.CommandHibernate})
			return err
		})
		transit(session.Running, session.Hibernating, session.EventHibernate)
		snapshot, bundleID := fmt.Sprintf("im-%d", i), session.NewID(session.BundlePrefix)
		count("SnapshotMade", func() error {
			return db.SnapshotMade(b.ctx, image.Intent{ID: session.NewID("img_"), SessionID: b.id, Generation: generation}, snapshot)
		})
		count("BundleCommit", func() error {
			return db.BundleCommit(b.ctx, bundle.Bundle{
				ID: bundleID, SessionID: b.id, Generation: generation, SnapshotID: snapshot, Verified: true,
			})
		})
		no++
		count("hibernated", func() error { // with the end of the sandbox
			return db.TransitionRecordEnded(b.ctx, session.Transition{
				SessionID: b.id, No: no, From: session.Hibernating, To: session.Hibernated, Event: session.EventSaved,
				Reason: session.ReasonRequested, Generation: generation,
			}, []int64{generation}, "hibernated")
		})
		transit(session.Hibernated, session.Restoring, session.EventWake)
		count("RevertDue", func() error {
			_, due, err := db.RevertDue(b.ctx, b.id)
			require.False(t, due)
			return err
		})
		generation++
		count("GenerationReserve", func() error { return db.GenerationReserve(b.ctx, b.id, generation, snapshot) })
		sandbox := session.SandboxRow{Generation: generation, SandboxID: session.NewID("sb-"), Health: session.SandboxReady, Deadline: time.Now().Add(time.Hour)}
		count("SandboxRecord", func() error {
			return db.SandboxRecord(b.ctx, b.id, generation, sandbox.SandboxID, session.SandboxStarting, sandbox.Deadline)
		})
		no++
		claim := run.Proposal{PromptID: b.submit(t, "hello"), ID: session.NewID(session.RunPrefix)}
		var verdict run.Verdict
		count("running", func() error { // with the state of the sandbox, the proof of the bundle and the claim of the prompt
			var err error
			verdict, err = db.TransitionRecordReady(b.ctx, session.Transition{
				SessionID: b.id, No: no, From: session.Restoring, To: session.Running, Event: session.EventReady,
				Reason: session.ReasonPrompt, Generation: generation,
			}, sandbox, bundleID, claim)
			return err
		})
		require.True(t, verdict.Granted)
		count("RunOfClaim", func() error {
			_, ok, err := db.RunOfClaim(b.ctx, b.id, claim.ID)
			require.True(t, ok)
			return err
		})
		_, err := db.RunEnd(b.ctx, run.Ending{RunID: verdict.RunID, Outcome: session.OutcomeCompleted})
		require.NoError(t, err)
	}
	require.Equal(t, map[string]int64{
		"CommandSubmit": 4, "hibernating": 3, "SnapshotMade": 2, "BundleCommit": 2, "hibernated": 2,
		"RevertDue": 1, "restoring": 2, "GenerationReserve": 2, "SandboxRecord": 2, "running": 2, "RunOfClaim": 1,
	}, trips)
}

// countingProxy counts the messages that clients send to Postgres, except those of the notifier.
type countingProxy struct {
	url                    string
	statements, roundTrips atomic.Int64
}

func newCountingProxy(t *testing.T, to string) *countingProxy {
	t.Helper()
	config, err := pgx.ParseConfig(to)
	require.NoError(t, err)
	network, server := pgconn.NetworkAddress(config.Host, config.Port)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	u, err := url.Parse(to)
	require.NoError(t, err)
	query := u.Query()
	query.Del("host")
	query.Del("port")
	u.Host, u.RawQuery = ln.Addr().String(), query.Encode()
	p := &countingProxy{url: u.String()}
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	all.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.serve(ctx, client, network, server) })
		}
	})
	t.Cleanup(func() { // after the clients have closed their connections
		cancel()
		ln.Close()
		all.Wait()
	})
	return p
}

func (p *countingProxy) serve(ctx context.Context, client net.Conn, network, address string) {
	defer client.Close()
	server, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { client.Close(); server.Close() })()
	go io.Copy(client, server) //nolint:errcheck // ends with either connection
	in := bufio.NewReader(client)
	started, notifies := false, false
	for {
		// A message of the protocol: a type, except in the first one, and a length that includes
		// itself.
		head := make([]byte, 5)
		if !started {
			head = head[:4]
		}
		if _, err := io.ReadFull(in, head); err != nil {
			return
		}
		size := int(binary.BigEndian.Uint32(head[len(head)-4:])) - 4
		if size < 0 || size > 16<<20 {
			return
		}
		body := make([]byte, size)
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		if !started {
			notifies = bytes.Contains(body, []byte("(notify)")) // its application_name
		}
		switch {
		case !started || notifies:
		case head[0] == 'E': // execute
			p.statements.Add(1)
		case head[0] == 'S': // sync
			p.roundTrips.Add(1)
		case head[0] == 'Q': // a simple query
			p.statements.Add(1)
			p.roundTrips.Add(1)
		}
		started = true
		if _, err := server.Write(slices.Concat(head, body)); err != nil {
			return
		}
	}
}
