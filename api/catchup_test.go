package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/postgres/postgrestest"
)

// BenchmarkCatchUp reads a whole log as one stream from a connection of this process. For
// comparison it alternates with a copy of the data of the same rows by Postgres to a connection.
func BenchmarkCatchUp(b *testing.B) {
	for _, size := range []int{100, 1 << 10, 16 << 10} {
		b.Run(fmt.Sprintf("%d bytes an event", size), func(b *testing.B) {
			url := postgrestest.URL(b)
			bundle, db := setupPostgresAt(b, url)
			direct, err := pgx.Connect(b.Context(), url)
			require.NoError(b, err)
			defer direct.Close(context.Background())
			id := bundle.do("POST", "/api/sessions", `{"agent":"demo"}`).session().ID
			data := json.RawMessage(fmt.Sprintf(`{"blockId":"b","delta":%q}`, strings.Repeat("x", size)))
			const total = 128 << 20
			for left := total / (size + 250); left > 0; {
				n := min(left, 1000, 1+(4<<20)/size)
				add := eventlog.Append{SessionID: id}
				for range n {
					add.Events = append(add.Events, eventlog.Draft{Type: "text_delta", ConversationID: "main", At: time.Now(), Data: data})
				}
				verdicts, err := db.EventsAppend(b.Context(), []eventlog.Append{add})
				require.NoError(b, err)
				require.NoError(b, verdicts[0])
				left -= n
			}
			var read, copied int64
			var reading, copying time.Duration
			for b.Loop() {
				begin := time.Now()
				conn, err := net.Dial("tcp", strings.TrimPrefix(bundle.url, "http://"))
				require.NoError(b, err)
				_, err = fmt.Fprintf(conn, "GET /api/sessions/%s/events HTTP/1.1\r\nHost: localhost\r\n\r\n", id)
				require.NoError(b, err)
				buffer := make([]byte, 256<<10)
				for n := 0; !bytes.Contains(buffer[max(0, n-1000):n], []byte("event: caught_up")); {
					n, err = conn.Read(buffer)
					require.NoError(b, err)
					read += int64(n)
				}
				conn.Close()
				reading += time.Since(begin)
				begin = time.Now()
				rows := countBytes(0)
				_, err = direct.PgConn().CopyTo(b.Context(), &rows, "COPY (SELECT data FROM event_log ORDER BY session_no, seq) TO STDOUT")
				require.NoError(b, err)
				copying += time.Since(begin)
				copied += int64(rows)
			}
			b.ReportMetric(float64(read)/(1<<20)/reading.Seconds(), "MiB/s")
			b.ReportMetric(float64(copied)/(1<<20)/copying.Seconds(), "copy-MiB/s")
		})
	}
}

// countBytes is a writer that counts bytes.
type countBytes int64

func (c *countBytes) Write(p []byte) (int, error) {
	*c += countBytes(len(p))
	return len(p), nil
}
