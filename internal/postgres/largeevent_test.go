package postgres_test

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/postgres"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// TestDataOfLargeEventIsStoredApart checks that the row of a large event refers to its data,
// which is written together with the row, read only if the event is returned, and erased together
// with the row.
func TestDataOfLargeEventIsStoredApart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.running(t)
	conn, err := pgx.Connect(b.ctx, b.url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(t.Context())) })
	number := func(sql string, args ...any) (n int64) {
		t.Helper()
		require.NoError(t, conn.QueryRow(b.ctx, sql, args...).Scan(&n))
		return n
	}
	var apart string
	require.NoError(t, conn.QueryRow(b.ctx, "SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = 'event_log'::regclass").Scan(&apart))
	before, chunks := number("SELECT pg_relation_size('event_log')"), number("SELECT count(*) FROM "+apart)

	// As large as the bounds of a block allow, and almost incompressible.
	random := make([]byte, conversation.MaxBlockBytes/2)
	_, err = rand.Read(random)
	require.NoError(t, err)
	large, err := json.Marshal(map[string]any{"block": map[string]any{
		"id": "large", "type": "tool_result", "status": "complete", "output": hex.EncodeToString(random),
	}})
	require.NoError(t, err)
	require.Greater(t, len(large), 1<<20)
	first := b.position(t)
	a := eventlog.Append{SessionID: b.id, Generation: 1}
	for n := range 10 {
		data := json.RawMessage(fmt.Sprintf(`{"title":"%d"}`, n))
		kind := "title"
		if n >= 5 {
			kind, data = "block_complete", large
		}
		a.Events = append(a.Events, eventlog.Draft{Type: kind, Data: data})
	}
	require.NoError(t, b.appendOne(t, a))
	require.LessOrEqual(t, number("SELECT pg_relation_size('event_log')")-before, int64(16<<10), "the rows are small")
	stored := number("SELECT count(*) FROM " + apart)
	require.Greater(t, stored-chunks, int64(5*100), "the data that they refer to is not")

	// The size of the data is known without reading it: the bounds of pages only need the rows.
	var plan []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	require.NoError(t, conn.QueryRow(b.ctx, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+postgres.EventsReadSQL,
		[]string{b.id}, []int64{first}, []int64{first + 10}, []int32{1024}, []int64{1 << 40}).Scan(&plan))
	require.Less(t, plan[0].Plan.Hit+plan[0].Plan.Read, 100, "blocks of 8 KiB; the data alone has 640")
	whole, err := b.EventsPage(b.ctx, b.id, first+5, 1)
	require.NoError(t, err)
	require.JSONEq(t, string(large), string(whole[0].Data))

	require.NoError(t, b.EventsPrune(b.ctx, b.id, first+7))
	b.sql(t, "VACUUM event_log")
	require.Less(t, number("SELECT count(*) FROM "+apart), stored)
	b.transit(t, session.EventStop, "")
	require.NoError(t, b.PurgeContent(b.ctx, b.id))
	b.sql(t, "VACUUM event_log")
	require.Equal(t, chunks, number("SELECT count(*) FROM "+apart))
}
