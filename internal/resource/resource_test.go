package resource_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/checkpoint"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/receipt"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

var at = time.Date(2026, 3, 4, 5, 6, 7, 80_000_000, time.FixedZone("east", 3600))

func TestSessionHasAllDocumentedFields(t *testing.T) {
	t.Parallel()
	got, err := json.Marshal(resource.Session(session.Session{
		ID: "ses_1", Status: session.Running, Agent: "demo", CreatedAt: at, LastActivity: at, IdleTimeout: 15 * time.Minute,
		Receipt: &receipt.Receipt{Kind: receipt.Full},
		Loaded:  true,
		Saves:   checkpoint.Saves{Policy: "10m0s", Newest: at},
		Pending: []session.Command{{ID: "cmd_1", Kind: session.CommandStop, Status: session.CommandPending, CreatedAt: at}},
		Sandbox: &session.SandboxView{SandboxID: "sb-1", Status: session.SandboxReady, LastHealthCheck: at, Since: at, Deadline: at.Add(24 * time.Hour)},
	}))
	require.NoError(t, err)
	require.JSONEq(t, `{
		"id": "ses_1", "status": "running", "agent": "demo",
		"createdAt": "2026-03-04T04:06:07.080Z", "lastActivityAt": "2026-03-04T04:06:07.080Z",
		"idleTimeout": "15m0s", "metadata": {}, "options": {}, "generation": 0,
		"receipt": {"kind": "full", "missing": []},
		"metrics": {"activeSeconds": 0, "messages": 0, "toolCalls": 0, "inputTokens": 0, "outputTokens": 0, "costUsd": null},
		"queue": {"queued": 0, "processing": 0, "unknown": 0, "held": false}, "questions": {"open": 0},
		"doing": {"state": "idle", "text": "idle; hibernates after 15m0s"}, "idleTimeoutSeconds": 900,
		"sleepsAt": "2026-03-04T04:21:07.080Z", "expiresAt": "2026-03-05T03:46:07.080Z", "nextCheckpointAt": "2026-03-04T04:16:07.080Z",
		"pendingCommands": [{"id": "cmd_1", "kind": "stop", "status": "pending", "createdAt": "2026-03-04T04:06:07.080Z"}],
		"runtime": {"isLoaded": true, "sandbox": {"sandboxId": "sb-1", "status": "ready", "restartCount": 0, "lastHealthCheck": "2026-03-04T04:06:07.080Z"}}
	}`, string(got))
}

func TestSessionWithoutSandboxHasNull(t *testing.T) {
	t.Parallel()
	got, err := json.Marshal(resource.Session(session.Session{}))
	require.NoError(t, err)
	require.Contains(t, string(got), `"runtime":{"isLoaded":false,"sandbox":null}`)
	require.NotContains(t, string(got), "receipt")
}

func TestPromptOmitsUnsetTimes(t *testing.T) {
	t.Parallel()
	got, err := json.Marshal(resource.Prompt(session.Prompt{
		ID: "p1", SessionID: "ses_1", Ordinal: 3, Status: session.PromptQueued, Content: "hi",
		Mode: session.Followup, OnUnknown: session.Hold, CreatedAt: at,
	}))
	require.NoError(t, err)
	require.JSONEq(t, `{"id": "p1", "sessionId": "ses_1", "ordinal": 3, "status": "queued", "content": "hi",
		"mode": "followup", "onUnknown": "hold", "createdAt": "2026-03-04T04:06:07.080Z"}`, string(got))
}

func TestEventKeepsItsDataUnchanged(t *testing.T) {
	t.Parallel()
	got, err := json.Marshal(event.FromLog(eventlog.Event{Seq: 7, Type: "title", SessionID: "ses_1", At: at, Data: json.RawMessage(`{"title":"a\u0000b"}`)}))
	require.NoError(t, err)
	require.JSONEq(t, `{"seq":7,"type":"title","sessionId":"ses_1","at":"2026-03-04T04:06:07.080Z","data":{"title":"a\u0000b"}}`, string(got))
}

func TestTimesAndDurationsRoundTrip(t *testing.T) {
	t.Parallel()
	type both struct {
		At  resource.Time
		For resource.Duration
	}
	data, err := json.Marshal(both{resource.Time(at), resource.Duration(90 * time.Second)})
	require.NoError(t, err)
	var back both
	require.NoError(t, json.Unmarshal(data, &back))
	require.True(t, time.Time(back.At).Equal(at))
	require.Equal(t, resource.Duration(90*time.Second), back.For)
	require.Error(t, json.Unmarshal([]byte(`{"At": "yesterday"}`), &back))
	require.Error(t, json.Unmarshal([]byte(`{"For": 5}`), &back))
}
