package client_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// Files that span many pages arrive complete and equal those of a single response.
func TestTranscriptsAreReadInPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	id := b.store.Put(session.Hibernated)
	large := strings.Repeat("a line with <ü>\n", 200_000)
	b.store.With(id, func(r *apitest.Row) {
		r.Transcripts = []transcript.File{{Path: "/a", Data: []byte(large)}, {Path: "/b", Version: 2, Data: []byte("\xff\x00")}, {Path: "/c"}}
	})
	var files struct {
		Files []client.TranscriptFile `json:"files"`
	}
	for f, err := range b.client.Transcripts(ctx, id) {
		require.NoError(t, err)
		files.Files = append(files.Files, f)
	}
	raw, err := b.client.Transcript(ctx, id)
	require.NoError(t, err)
	got, err := json.Marshal(files)
	require.NoError(t, err)
	require.JSONEq(t, string(raw), string(got))

	var one strings.Builder
	pieces := 0
	for p, err := range b.client.TranscriptPieces(ctx, id, "/a") {
		require.NoError(t, err)
		require.EqualValues(t, one.Len(), p.Offset)
		one.Write(p.Data)
		pieces++
	}
	require.Equal(t, large, one.String())
	require.Greater(t, pieces, 2)
	for _, err := range b.client.TranscriptPieces(ctx, id, "/none") {
		require.ErrorContains(t, err, "no transcript file")
	}
}
