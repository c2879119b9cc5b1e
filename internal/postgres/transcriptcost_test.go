package postgres_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// TestPositionsOfTranscriptsDoNotReadEverySegment counts the rows that are read where a session has
// thousands of segments in a few files.
func TestPositionsOfTranscriptsDoNotReadEverySegment(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const paths, segments = 3, 2000
	b.sql(t, fmt.Sprintf(`INSERT INTO transcripts (session_id, path, version, start, size, run_id, data)
		SELECT '%s', '/' || p, p, n * 10, 10, 'run_1', '' FROM generate_series(1, %d) p, generate_series(0, %d) n`, b.id, paths, segments-1))
	b.sql(t, "ANALYZE transcripts")
	positions, err := b.TranscriptPositions(b.ctx, b.id)
	require.NoError(t, err)
	require.Equal(t, []session.TranscriptPosition{
		{Path: "/1", Version: 1, Size: 10 * segments}, {Path: "/2", Version: 2, Size: 10 * segments}, {Path: "/3", Version: 3, Size: 10 * segments},
	}, positions)

	queries, err := os.ReadFile("queries/transcripts.sql")
	require.NoError(t, err)
	_, query, found := strings.Cut(string(queries), "-- name: TranscriptPositions :many\n")
	require.True(t, found)
	query, _, _ = strings.Cut(query, ";")
	conn, err := pgx.Connect(b.ctx, b.url)
	require.NoError(t, err)
	defer conn.Close(b.ctx)
	var plans []struct{ Plan planNode }
	var raw []byte
	err = conn.QueryRow(b.ctx, "EXPLAIN (ANALYZE, FORMAT JSON) "+strings.ReplaceAll(query, "@session_id", "'"+b.id+"'")).Scan(&raw)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &plans))
	require.Less(t, plans[0].Plan.scanned(), 50.0, "%s", raw)
}

type planNode struct {
	NodeType string     `json:"Node Type"`
	Relation string     `json:"Relation Name"`
	Rows     float64    `json:"Actual Rows"`
	Loops    float64    `json:"Actual Loops"`
	Plans    []planNode `json:"Plans"`
}

// scanned is how many rows of the table the plan has read.
func (n planNode) scanned() float64 {
	var rows float64
	if n.Relation == "transcripts" {
		rows = n.Rows * n.Loops
	}
	for _, p := range n.Plans {
		rows += p.scanned()
	}
	return rows
}
