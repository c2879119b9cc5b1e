package api_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/feed"
	"github.com/overwinter-dev/overwinter/internal/postgres"
)

// BenchmarkFanOut compares many readers of one session with a bare loop in the same process: an
// http.Handler that writes and flushes the data that it receives from a channel. The readers run in
// another process. The latency is measured from the end of a commit, or the call of the bare loop's
// broadcast, to a reader's socket. The loops alternate round by round, so that other load on the
// machine slows down both alike.
func BenchmarkFanOut(b *testing.B) {
	const readers, rounds, burst, perAppend = 500, 100, 3000, 20
	subject := startFanOut(b)
	floor := startBare(b)
	for b.Loop() {
		for _, loop := range []*fanOut{subject, floor} {
			loop.attach(b, readers)
		}
		for range rounds {
			for _, loop := range []*fanOut{subject, floor} {
				loop.round(b)
			}
		}
		for _, loop := range []*fanOut{subject, floor} {
			loop.burst(b, burst, perAppend)
			loop.report(b)
			loop.detach(b)
		}
	}
}

// fanOut is a server with many readers in another process.
type fanOut struct {
	name string
	url  string
	send func(events int) // sends events together and returns when they are committed

	readers int
	client  *exec.Cmd
	stdin   io.WriteCloser
	lines   *bufio.Scanner
	memory  float64 // bytes for each reader
	waited  []time.Duration
	rate    float64 // rate of a burst
}

// fanOutData returns the data of an event. Readers count the tildes.
func fanOutData() json.RawMessage {
	return fmt.Appendf(nil, `{"blockId":"b","delta":%q}`, "~"+strings.Repeat("word ", 20))
}

func startFanOut(b *testing.B) *fanOut {
	b.Helper()
	bundle, db := setupPostgres(b)
	id := bundle.do("POST", "/api/sessions", `{"agent":"demo"}`).session().ID
	return &fanOut{
		name: "", url: bundle.url + "/api/sessions/" + id + "/events?after=latest",
		send: func(n int) { appendEvents(b, db, id, n) },
	}
}

func appendEvents(t testing.TB, db *postgres.DB, id string, n int) {
	t.Helper()
	add := eventlog.Append{SessionID: id}
	for range n {
		add.Events = append(add.Events, eventlog.Draft{Type: "text_delta", ConversationID: "main", At: time.Now(), Data: fanOutData()})
	}
	verdicts, err := db.EventsAppend(t.Context(), []eventlog.Append{add})
	require.NoError(t, err)
	require.NoError(t, verdicts[0])
}

// bare is a minimal fan-out of server-sent events.
type bare struct {
	mu      sync.Mutex
	seq     int64
	readers map[chan []byte]bool
}

func (l *bare) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	frames := make(chan []byte, 16) // a burst waits for its readers
	l.mu.Lock()
	l.readers[frames] = true
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.readers, frames)
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	fmt.Fprint(w, "event: caught_up\ndata: {}\n\n")
	control.Flush()
	for {
		select {
		case frame := <-frames:
			if _, err := w.Write(frame); err != nil {
				return
			}
			control.Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func (l *bare) broadcast(n int) {
	format := feed.Format()
	for range n {
		l.seq++
		e := eventlog.Event{
			Seq: l.seq, Type: "text_delta", SessionID: "ses_01K9ZZZZZZZZZZZZZZZZZZZZZZ", ConversationID: "main",
			At: time.Now(), Data: fanOutData(),
		}
		page := eventlog.NewPage(&format, e.SessionID, l.seq-1)
		page.Add(&e)
		l.mu.Lock()
		for frames := range l.readers {
			frames <- page.Batch().Frames
		}
		l.mu.Unlock()
	}
}

func startBare(b *testing.B) *fanOut {
	b.Helper()
	loop := &bare{readers: map[chan []byte]bool{}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	server := &http.Server{Handler: loop, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); server.Serve(ln) }() //nolint:errcheck // it ends when it is closed
	b.Cleanup(func() { server.Close(); <-done })
	return &fanOut{name: "bare-", url: "http://" + ln.Addr().String() + "/", send: loop.broadcast}
}

// resident returns the memory of this process after the Go runtime has returned unused memory.
func resident(b *testing.B) float64 {
	b.Helper()
	debug.FreeOSMemory()
	debug.FreeOSMemory() // releases memory that the first call made unused
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Skip("no /proc")
	}
	var size, pages float64
	_, err = fmt.Sscan(string(statm), &size, &pages)
	require.NoError(b, err)
	return pages * float64(os.Getpagesize())
}

// attach connects readers from another process and measures the memory that they use in this one.
func (l *fanOut) attach(b *testing.B, readers int) {
	b.Helper()
	before := resident(b)
	l.readers = readers
	l.client = exec.CommandContext(context.WithoutCancel(b.Context()), os.Args[0], "-test.run=^TestFanOutReaders$")
	l.client.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", fanOutReaders, readers, l.url))
	l.client.Stderr = os.Stderr
	var err error
	l.stdin, err = l.client.StdinPipe()
	require.NoError(b, err)
	stdout, err := l.client.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, l.client.Start())
	l.lines = bufio.NewScanner(stdout)
	l.lines.Buffer(nil, 1<<20)
	require.Equal(b, "ready", l.line(b))
	l.memory = (resident(b) - before) / float64(readers)
}

func (l *fanOut) line(b *testing.B) string {
	b.Helper()
	require.True(b, l.lines.Scan(), "the readers have ended: %v", l.lines.Err())
	return l.lines.Text()
}

// expect makes the readers report when each of them has received the events.
func (l *fanOut) expect(b *testing.B, events int) {
	b.Helper()
	_, err := fmt.Fprintln(l.stdin, events)
	require.NoError(b, err)
	require.Equal(b, "waiting", l.line(b))
}

func (l *fanOut) arrivals(b *testing.B) []time.Time {
	b.Helper()
	var at []int64
	require.NoError(b, json.Unmarshal([]byte(l.line(b)), &at))
	require.Len(b, at, l.readers)
	out := make([]time.Time, len(at))
	for i, nanos := range at {
		out[i] = time.Unix(0, nanos)
	}
	return out
}

// round sends one event.
func (l *fanOut) round(b *testing.B) {
	b.Helper()
	l.expect(b, 1)
	begin := time.Now()
	l.send(1)
	if l.name == "" {
		begin = time.Now() // it is committed
	}
	for _, at := range l.arrivals(b) {
		l.waited = append(l.waited, at.Sub(begin))
	}
}

// burst sends many events as fast as they are accepted.
func (l *fanOut) burst(b *testing.B, events, perSend int) {
	b.Helper()
	l.expect(b, events)
	begin := time.Now()
	for sent := 0; sent < events; sent += perSend {
		l.send(perSend)
	}
	last := slices.MaxFunc(l.arrivals(b), time.Time.Compare)
	l.rate = float64(events*l.readers) / last.Sub(begin).Seconds()
}

func (l *fanOut) report(b *testing.B) {
	b.Helper()
	slices.Sort(l.waited)
	at := func(q float64) float64 {
		return float64(l.waited[int(q*float64(len(l.waited)-1))].Microseconds()) / 1000
	}
	b.ReportMetric(at(.5), l.name+"p50-ms")
	b.ReportMetric(at(.99), l.name+"p99-ms")
	b.ReportMetric(l.memory/1024, l.name+"KiB/reader")
	b.ReportMetric(l.rate, l.name+"deliveries/s")
}

func (l *fanOut) detach(b *testing.B) {
	b.Helper()
	l.stdin.Close()
	require.NoError(b, l.client.Wait())
}

// fanOutReaders makes the test binary act as the readers of BenchmarkFanOut.
const fanOutReaders = "OVERWINTER_FANOUT_READERS"

// TestFanOutReaders is the other process. It connects, and for each number on its input waits until
// every connection has received that many more events, and prints the times.
func TestFanOutReaders(t *testing.T) { //nolint:paralleltest // it is a separate process
	text, ok := os.LookupEnv(fanOutReaders)
	if !ok {
		t.Skip("it is run by BenchmarkFanOut")
	}
	count, url, _ := strings.Cut(text, " ")
	readers, err := strconv.Atoi(count)
	require.NoError(t, err)
	type reader struct {
		body   io.ReadCloser
		events int
	}
	all := make([]*reader, readers)
	transport := &http.Transport{DisableCompression: true}
	for i := range all {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		require.NoError(t, err)
		resp, err := transport.RoundTrip(req) //nolint:bodyclose // it is closed at the end
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		buffer := make([]byte, 64)
		var seen []byte
		for !bytes.Contains(seen, []byte("caught_up")) {
			n, err := resp.Body.Read(buffer)
			require.NoError(t, err)
			seen = append(seen, buffer[:n]...)
		}
		all[i] = &reader{body: resp.Body}
	}
	fmt.Fprintln(os.Stdout, "ready")
	input := bufio.NewScanner(os.Stdin)
	wanted := 0
	for input.Scan() {
		n, err := strconv.Atoi(input.Text())
		require.NoError(t, err)
		wanted += n
		at := make([]int64, readers)
		var waiting sync.WaitGroup
		fmt.Fprintln(os.Stdout, "waiting")
		for i, r := range all {
			waiting.Go(func() {
				buffer := make([]byte, 32<<10)
				for r.events < wanted {
					n, err := r.body.Read(buffer)
					if err != nil {
						t.Errorf("reader %d: %v", i, err)
						return
					}
					r.events += bytes.Count(buffer[:n], []byte("~"))
				}
				at[i] = time.Now().UnixNano()
			})
		}
		waiting.Wait()
		line, err := json.Marshal(at)
		require.NoError(t, err)
		fmt.Fprintln(os.Stdout, string(line))
	}
	for _, r := range all {
		r.body.Close()
	}
	transport.CloseIdleConnections()
}
