package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// The data of the part log: sessions that append words, and one session with larger events.
const (
	logSessions   = 64
	wordsOfAppend = 16
	largeEvent    = 4 << 10
)

// measureLog measures the event log: its writer compared with bare copies of the same rows, and a
// reader that catches up.
func measureLog(ctx context.Context, b *bench, s *section) (err error) {
	if err := b.release(ctx); err != nil {
		return err
	}
	sys, err := b.newSystem(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sys.close(context.WithoutCancel(ctx))) }()
	s.note("The bench appends as a worker does, for %d sessions at once, %d words at a time, while the system's worker is frozen. The floor copies the same rows, in commits as "+
		"large as the mean of the append, with one connection, into a table with the same columns and constraints. *Catch-up* is one reader of the API from the first event to the last, in bytes of the stream; "+
		"its floor is a query of the data of the same events.", logSessions, wordsOfAppend)
	frozen := readProcesses().child(workerCPU, sys.pid())
	if err := syscall.Kill(frozen, syscall.SIGSTOP); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, syscall.Kill(frozen, syscall.SIGCONT)) }()

	url, err := sys.databaseURL()
	if err != nil {
		return err
	}
	db, err := postgres.Open(ctx, url, postgres.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	var commits atomic.Int64
	appender := eventlog.NewAppender(db, eventlog.AppenderOptions{Committed: func(time.Duration, error) { commits.Add(1) }})
	appender.Start() //nolint:contextcheck // Stop ends it
	defer appender.Stop(context.WithoutCancel(ctx))

	writers := make([]*logWriter, logSessions)
	for i := range writers {
		if writers[i], err = newLogWriter(ctx, db, appender); err != nil {
			return err
		}
	}
	before := commits.Load()
	rows := b.options.LogRows
	began := time.Now()
	var group errgroup.Group
	for _, w := range writers {
		group.Go(func() error { return w.write(ctx, rows/logSessions, wordsOfAppend, "word ") })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	took := time.Since(began)
	perCommit := max(1, rows/int(max(1, commits.Load()-before)))
	copied, err := sys.bare.copyEvents(ctx, perCommit)
	if err != nil {
		return err
	}
	s.compare(fmt.Sprintf("append, %d rows per commit", perCommit), number(float64(rows)/took.Seconds(), perSecond), "COPY of the same rows", number(copied, perSecond), reaches(0.5))

	return measureCatchUps(ctx, db, appender, sys, s, rows)
}

// measureCatchUps measures readers of a log of short events, and of one of long events.
func measureCatchUps(ctx context.Context, db *postgres.DB, appender *eventlog.Appender, sys *system, s *section, rows int) error {
	for _, c := range []struct {
		name    string
		events  int
		content string
	}{
		{"catch-up, events of one word", rows, "word "},
		{"catch-up, events of 4 KiB", rows / 10, strings.Repeat("x", largeEvent)},
	} {
		w, err := newLogWriter(ctx, db, appender)
		if err != nil {
			return err
		}
		if err := w.write(ctx, c.events, 256, c.content); err != nil {
			return err
		}
		if err := w.measureCatchUp(ctx, sys, s, c.name); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// logWriter appends events to one session as the attempt at its run.
type logWriter struct {
	appender       *eventlog.Appender
	session, runID string
	frame          int64
}

const logToken = "bench"

// newLogWriter stores a session with a run in progress.
func newLogWriter(ctx context.Context, db *postgres.DB, appender *eventlog.Appender) (*logWriter, error) {
	stored, _, err := db.SessionCreate(ctx, session.Session{ID: session.NewID(session.SessionPrefix), Agent: "demo", Lazy: true}, nil, session.Idempotency{})
	if err != nil {
		return nil, err
	}
	w := &logWriter{appender: appender, session: stored.ID, runID: session.NewID(session.RunPrefix)}
	if err := db.GenerationReserve(ctx, w.session, 1, "im-bench"); err != nil {
		return nil, err
	}
	err = db.TransitionRecord(ctx, session.Transition{
		SessionID: w.session, No: 1, From: session.Initializing, To: session.Running, Event: session.EventReady, Generation: 1, At: time.Now(),
	})
	if err != nil {
		return nil, err
	}
	prompt, _, _, err := db.PromptSubmit(ctx, session.Prompt{ID: session.NewID(session.PromptPrefix), SessionID: w.session, Content: "hello"})
	if err != nil {
		return nil, err
	}
	if _, err := db.RunBegin(ctx, w.session, prompt.ID, w.runID, 1); err != nil {
		return nil, err
	}
	_, err = db.RunAttach(ctx, w.runID, logToken, run.Dispatch{No: 1, Attempt: 1}, nil)
	return w, err
}

// write appends a number of events, some at a time.
func (w *logWriter) write(ctx context.Context, events, atOnce int, content string) error {
	data, err := json.Marshal(map[string]string{"blockId": "0193a5f0-7c7e-7b3e-8f0a-1b2c3d4e5f60", "delta": content})
	if err != nil {
		return err
	}
	for left := events; left > 0; left -= atOnce {
		a := eventlog.Append{SessionID: w.session, RunID: w.runID, Generation: 1, Token: logToken, State: []byte("state")}
		for range min(left, atOnce) {
			a.Events = append(a.Events, eventlog.Draft{Type: "text_delta", ConversationID: "main", At: time.Now(), Frame: w.frame, Data: data})
			w.frame++
		}
		a.LastFrame = w.frame - 1
		if err := w.appender.Append(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// copyEvents copies all rows of the log into a table of the same form, with a number of rows per
// commit, and returns the rows per second.
func (b *bare) copyEvents(ctx context.Context, perCommit int) (float64, error) {
	conn := b.postgres.PgConn()
	var dump bytes.Buffer
	if _, err := conn.CopyTo(ctx, &dump, "COPY event_log TO STDOUT"); err != nil {
		return 0, err
	}
	if _, err := b.postgres.Exec(ctx, "CREATE TABLE IF NOT EXISTS bench_events (LIKE event_log INCLUDING ALL)"); err != nil {
		return 0, err
	}
	var batches [][]byte
	rows := 0
	for lines := range slices.Chunk(bytes.SplitAfter(bytes.TrimSuffix(dump.Bytes(), []byte("\n")), []byte("\n")), perCommit) {
		rows += len(lines)
		batches = append(batches, bytes.Join(lines, nil))
	}
	began := time.Now()
	for _, batch := range batches {
		if _, err := conn.CopyFrom(ctx, bytes.NewReader(batch), "COPY bench_events FROM STDIN"); err != nil {
			return 0, err
		}
	}
	return float64(rows) / time.Since(began).Seconds(), nil
}

// measureCatchUp reads the session's stream from its start, and only its data.
func (w *logWriter) measureCatchUp(ctx context.Context, sys *system, s *section, name string) error {
	streamed, queried := &samples{}, &samples{}
	var streamBytes, dataBytes int
	for i := range 4 {
		began := time.Now()
		size, err := sys.client.catchUp(ctx, w.session)
		if err != nil {
			return err
		}
		took := time.Since(began)
		began = time.Now()
		data, err := sys.bare.readData(ctx, w.session)
		if err != nil {
			return err
		}
		if i > 0 { // the first one warms up
			streamed.add(took)
			queried.add(time.Since(began))
		}
		streamBytes, dataBytes = size, data
	}
	s.compare(name, number(float64(streamBytes)/streamed.p50().Seconds(), bytesPerSecond), "query of the data",
		number(float64(dataBytes)/queried.p50().Seconds(), bytesPerSecond), atLeast(number(200e6, bytesPerSecond)))
	return nil
}

// errCaughtUp ends a stream.
var errCaughtUp = errors.New("caught up")

// catchUp reads a stream from its start until all stored events have arrived, and returns the bytes
// of its data.
func (c *client) catchUp(ctx context.Context, sessionID string) (size int, err error) {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	events := 0
	err = c.lines(ctx, "/api/sessions/"+sessionID+"/events", func(data []byte) error {
		size += len(data)
		if bytes.HasPrefix(data, []byte(`{"seq":`)) && !bytes.Contains(data[:min(len(data), 64)], []byte(`"type"`)) {
			return errCaughtUp
		}
		events++
		return nil
	})
	if !errors.Is(err, errCaughtUp) {
		return 0, errors.Join(fmt.Errorf("the stream ended after %d events", events), err)
	}
	return size, nil
}

// readData reads the data of a session's events, without decoding it.
func (b *bare) readData(ctx context.Context, sessionID string) (size int, err error) {
	result := b.postgres.PgConn().ExecParams(ctx,
		"SELECT data FROM event_log WHERE session_no = (SELECT no FROM sessions WHERE id = $1) ORDER BY seq", [][]byte{[]byte(sessionID)}, nil, nil, nil)
	for result.NextRow() {
		size += len(result.Values()[0])
	}
	_, err = result.Close()
	return size, err
}
