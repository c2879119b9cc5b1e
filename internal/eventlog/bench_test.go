package eventlog_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
)

// BenchmarkAppend measures an append of one event relative to the minimum cost of a commit on the
// same server: one row in a separate table. Only the ratios are meaningful; the test server does
// not wait for its disk.
func BenchmarkAppend(b *testing.B) {
	url := postgrestest.URL(b)
	l := &logBundle{db: postgrestest.Open(b, url), url: url}
	bare := bareCommit(b, url)
	for _, writers := range []int{1, 8, 64} {
		b.Run(map[int]string{1: "alone", 8: "of 8 sessions", 64: "of 64 sessions"}[writers], func(b *testing.B) {
			appender := eventlog.NewAppender(l.db, eventlog.AppenderOptions{})
			appender.Start()
			defer appender.Stop(context.Background())
			ids, runs := make([]string, writers), make([]string, writers)
			for i := range ids {
				ids[i] = l.session(b)
				runs[i] = l.run(b, ids[i])
			}
			var left, waited atomic.Int64
			left.Store(int64(b.N))
			b.ResetTimer()
			var all sync.WaitGroup
			for i := range writers {
				all.Go(func() {
					for no := int64(0); left.Add(-1) >= 0; no++ {
						begin := time.Now()
						if err := appender.Append(b.Context(), frame(ids[i], runs[i], no, 1)); err != nil {
							b.Error(err)
							return
						}
						waited.Add(int64(time.Since(begin)))
					}
				})
			}
			all.Wait()
			b.StopTimer()
			latency := float64(waited.Load()) / float64(b.N)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
			b.ReportMetric(latency/float64(bare), "latency/commit")
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(bare), "cost/commit")
		})
	}
}

// bareCommit returns how long a commit of one row takes.
func bareCommit(b *testing.B, url string) time.Duration {
	b.Helper()
	ctx := b.Context()
	conn, err := pgx.Connect(ctx, url)
	require.NoError(b, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(ctx, "CREATE TABLE bare (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, data json)")
	require.NoError(b, err)
	const rounds = 2000
	begin := time.Now()
	for range rounds {
		_, err := conn.Exec(ctx, "INSERT INTO bare (data) VALUES ($1)", `{"blockId":"b","delta":"0.0 "}`)
		require.NoError(b, err)
	}
	return time.Since(begin) / rounds
}

// BenchmarkWake measures the time from the commit of an append to its arrival at a waiting reader.
func BenchmarkWake(b *testing.B) {
	url := postgrestest.URL(b)
	l := &logBundle{db: postgrestest.Open(b, url), url: url}
	appender := eventlog.NewAppender(l.db, eventlog.AppenderOptions{})
	appender.Start()
	defer appender.Stop(context.Background())
	follower := eventlog.NewFollower(l.db, eventlog.FollowerOptions{Poll: time.Hour})
	follower.Start()
	defer follower.Stop()
	id := l.session(b)
	runID := l.run(b, id)
	start, err := l.db.EventsPosition(b.Context(), id)
	require.NoError(b, err)
	r, err := follower.Follow(b.Context(), id, start)
	require.NoError(b, err)
	defer r.Close()
	_, err = r.Next(b.Context(), nil)
	require.NoError(b, err)
	conn, err := pgx.Connect(b.Context(), url)
	require.NoError(b, err)
	defer conn.Close(context.Background())
	require.Eventually(b, func() bool {
		var listens bool
		err := conn.QueryRow(b.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN %')").Scan(&listens)
		return err == nil && listens
	}, waitLimit, 10*time.Millisecond)
	var waited time.Duration
	b.ResetTimer()
	for no := range int64(b.N) {
		require.NoError(b, appender.Append(b.Context(), frame(id, runID, no, 1)))
		begin := time.Now()
		_, err := r.Next(b.Context(), nil)
		require.NoError(b, err)
		waited += time.Since(begin)
	}
	b.ReportMetric(float64(waited.Microseconds())/float64(b.N), "us/wake")
}

// BenchmarkAppendBatch measures an append of many events of a run relative to copying the same rows
// into a table of the same shape, each in a transaction. It alternates between the two.
func BenchmarkAppendBatch(b *testing.B) {
	const events = 500
	url := postgrestest.URL(b)
	l := &logBundle{db: postgrestest.Open(b, url), url: url}
	id := l.session(b)
	runID := l.run(b, id)
	conn, err := pgx.Connect(b.Context(), url)
	require.NoError(b, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(b.Context(), "CREATE TABLE copied (LIKE event_log INCLUDING ALL)")
	require.NoError(b, err)
	var appended, copied time.Duration
	no := int64(0)
	for b.Loop() {
		add := frame(id, runID, no, events)
		begin := time.Now()
		verdicts, err := l.db.EventsAppend(b.Context(), []eventlog.Append{add})
		appended += time.Since(begin)
		require.NoError(b, err)
		require.NoError(b, verdicts[0])
		var rows bytes.Buffer
		for i, e := range add.Events {
			fmt.Fprintf(&rows, "1\t%d\t%s\t1\t1\t%s\t%s\n", no*events+int64(i)+1, e.At.Format(time.RFC3339Nano), e.Type, e.Data)
		}
		begin = time.Now()
		_, err = conn.PgConn().CopyFrom(b.Context(), &rows, "COPY copied (session_no, seq, at, run_no, conversation_no, type, data) FROM STDIN")
		copied += time.Since(begin)
		require.NoError(b, err)
		no++
	}
	var in, out int64
	require.NoError(b, conn.QueryRow(b.Context(), "SELECT (SELECT count(*) FROM copied), (SELECT count(*) FROM event_log WHERE run_no > 0 AND type = 'text_delta')").Scan(&out, &in))
	require.Equal(b, [2]int64{no * events, no * events}, [2]int64{in, out})
	b.ReportMetric(float64(appended)/float64(copied), "append/copy")
	b.ReportMetric(float64(appended.Microseconds())/float64(no*events), "us/event")
}
