package export_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/export"
)

var header = export.Header{Format: export.Format, Version: export.Version, Release: "1.2.3", SessionID: "ses_1", ExportedAt: client.Time{Time: time.Unix(1, 0).UTC()}}

func written(t *testing.T, h export.Header, write func(w *export.Writer)) string {
	t.Helper()
	var out bytes.Buffer
	w, err := export.NewWriter(&out, h)
	require.NoError(t, err)
	write(w)
	return out.String()
}

func whole(t *testing.T, h export.Header) string {
	t.Helper()
	return written(t, h, func(w *export.Writer) {
		require.NoError(t, w.Write(export.KindSession, client.Session{ID: "ses_1", Status: client.StatusRunning}))
		require.NoError(t, w.Write("later", "a record of a later release"))
		require.NoError(t, w.Write(export.KindPrompt, client.Prompt{ID: "p"}))
		require.NoError(t, w.Write(export.KindEvent, export.Event{Seq: 1, Type: "status", Data: json.RawMessage(`{"status":"running"}`)}))
		for _, run := range []string{"r2", "r2", "r1"} {
			require.NoError(t, w.Write(export.KindHistory, client.HistoryEvent{RunID: run, Event: json.RawMessage(`{"eventId":"1"}`)}))
		}
		require.NoError(t, w.End(""))
	})
}

func TestExportRoundTrip(t *testing.T) {
	t.Parallel()
	f, err := export.Read(strings.NewReader(whole(t, header)))
	require.NoError(t, err)
	require.Equal(t, header, f.Header)
	require.Equal(t, client.StatusRunning, f.Session.Status)
	require.Len(t, f.Prompts, 1)
	require.Len(t, f.Events, 1)
	require.Len(t, f.Runs, 2)
	require.Len(t, f.Runs[0].Events, 2)
	require.NotNil(t, f.End)
}

func TestTruncatedFileHasNoEnd(t *testing.T) {
	t.Parallel()
	text := whole(t, header)
	first := strings.Index(text, "\n") + 1
	for n := first; n < len(text)-1; n++ {
		f, err := export.Read(strings.NewReader(text[:n]))
		require.NoError(t, err, "%d", n)
		require.Nil(t, f.End, "%d", n)
	}
}

func TestInvalidExportIsRefused(t *testing.T) {
	t.Parallel()
	later := header
	later.Version++
	lines := strings.SplitAfter(whole(t, header), "\n")
	for name, text := range map[string]string{
		"empty": "", "text": "hello\n", "another format": `{"record":"header","data":{"format":"x"}}` + "\n",
		"later version": whole(t, later), "a record is missing": strings.Join(append(lines[:2:2], lines[3:]...), ""),
		"two headers": lines[0] + lines[0],
	} {
		_, err := export.Read(strings.NewReader(text))
		require.Error(t, err, name)
	}
}

func TestExportHasNoContent(t *testing.T) {
	t.Parallel()
	const marker = "a private matter"
	s := export.BareSession(client.Session{ID: "ses_1", Title: marker, Metadata: json.RawMessage(`{"k":"` + marker + `"}`), Workspace: &client.Workspace{Setup: marker}})
	p := export.BarePrompt(client.Prompt{
		ID: "p", Content: marker, Attachments: []client.Attachment{{Name: marker}}, Resolution: &client.Resolution{Note: marker},
	})
	items := []any{s, p}
	for _, kind := range []string{"text_delta", "block_start", "prompt", "queue", "question", "file", "settings", "error", "x"} {
		items = append(items, export.Event{Seq: 7, Type: kind, Bytes: 42, Data: json.RawMessage(`{"text":"` + marker + `"}`)}.Bare())
	}
	encoded, err := json.Marshal(items)
	require.NoError(t, err)
	require.NotContains(t, string(encoded), marker)
	require.NotEmpty(t, export.Event{Type: event.TypeStatus, Data: json.RawMessage(`{}`)}.Bare().Data)
}
