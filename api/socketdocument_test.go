package api_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/api/apitest"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/session"
)

func TestDocumentOfSocketsIsServed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	want, err := os.ReadFile("asyncapi.yaml")
	require.NoError(t, err)
	require.Equal(t, string(want), string(b.do("GET", "/asyncapi.yaml", "").body))
}

func TestDocumentHasAllRequests(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("asyncapi.yaml")
	require.NoError(t, err)
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				OneOf []struct {
					Properties struct {
						Type struct {
							Const string
							Enum  []string
						}
					}
				} `yaml:"oneOf"`
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(data, &doc))
	var documented []string
	for _, r := range doc.Components.Schemas["Request"].OneOf {
		documented = append(documented, r.Properties.Type.Enum...)
		if r.Properties.Type.Const != "" {
			documented = append(documented, r.Properties.Type.Const)
		}
	}
	require.ElementsMatch(t, documented, api.SocketRequests())
}

// The document has the answers to requests with each sub-protocol.
func TestDocumentHasAllAnswers(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("asyncapi.yaml")
	require.NoError(t, err)
	type reference struct {
		Ref string `yaml:"$ref"`
	}
	var doc struct {
		Channels   map[string]struct{ Messages map[string]reference }
		Operations map[string]struct {
			Action   string
			Messages []reference
		}
		Components struct {
			Messages map[string]struct{ Name string }
		}
	}
	require.NoError(t, yaml.Unmarshal(data, &doc))
	b := setup(t)
	path := "/api/sessions/" + b.store.Put(session.Running) + "/ws?after=latest"
	for channel, protocols := range map[string][]string{"session": nil, "sessionBlocks": {"overwinter.blocks.v1"}, "sessionEvents": {"overwinter.events.v1"}} {
		sent := map[string]bool{} // messages sent by a server
		for _, operation := range doc.Operations {
			for _, m := range operation.Messages {
				in, key, _ := strings.Cut(strings.TrimPrefix(m.Ref, "#/channels/"), "/messages/")
				if in != channel || operation.Action != "send" {
					continue
				}
				of := strings.TrimPrefix(doc.Channels[channel].Messages[key].Ref, "#/components/messages/")
				name := doc.Components.Messages[of].Name
				if name == "" {
					name = of
				}
				sent[name] = true
			}
		}
		conn, _, err := b.dial(path, nil, protocols...) //nolint:bodyclose // the connection has it
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.CloseNow() })
		for _, request := range api.SocketRequests() {
			require.NoError(t, conn.Write(t.Context(), websocket.MessageText, fmt.Appendf(nil, `{"type":%q}`, request)))
			var answer serverMessage
			for answer.For != request { // skips events
				_, data, err := conn.Read(t.Context())
				require.NoError(t, err)
				answer = serverMessage{}
				require.NoError(t, json.Unmarshal(data, &answer))
			}
			require.True(t, sent[answer.Type], "%s is answered by %s in %s", request, answer.Type, channel)
		}
	}
}

// Every type of a session's events becomes a documented message.
func TestMessagesOfAllEventsAreDocumented(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.store.Put(session.Running)
	p := session.Prompt{ID: "p", SessionID: id, Ordinal: 1, Status: session.PromptQueued, Content: "hi", CreatedAt: time.Now()}
	tool := conversation.Block{ID: "t", Type: conversation.ToolUse, Status: conversation.Running, CreatedAt: time.Now(), Name: "ls"}
	for _, e := range []struct {
		kind string
		data any
		want string
	}{
		{"prompt", event.PromptSubmitted(p), "prompt"},
		{"queue", event.QueueData{Items: []event.QueueItem{}, Queued: 1}, "status"},
		{"turn_start", event.TurnStartData{RunID: "run"}, "agentStatus"},
		{"block_start", conversation.BlockStart{Block: tool}, "message"},
		{"block_update", conversation.BlockUpdate{BlockID: "t", Updates: conversation.Updates{Status: conversation.Success}}, "message.updated"},
		{"block_complete", conversation.BlockComplete{Block: tool}, "message.updated"},
		{"block_removed", conversation.BlockRemoved{BlockID: "t"}, "messages.removed"},
		{"text_delta", conversation.TextDelta{BlockID: "t"}, "chunk"},
		{"metadata_update", conversation.MetadataUpdate{}, "agentStatus"},
		{"turn_end", event.TurnEndData{}, "agentStatus"},
		{"question", event.QuestionData{}, "question"},
		{"question_resolved", event.QuestionResolvedData{}, "question.resolved"},
		{"file", event.FileData{Path: "a"}, "files-changed"},
		{"title", conversation.Title{}, "title"},
		{"error", conversation.Problem{}, "error"},
		{"setup", event.SetupData{}, "event"},
		{"network", event.NetworkData{}, "event"},
		{"command", event.CommandData{}, "event"},
		{"settings", event.SettingsData{}, "event"},
		{"status", event.StatusData{Status: session.Running}, "status"},
		{"screenshot", conversation.Screenshot{}, "screenshot"},
		{"git_state", conversation.GitState{Branch: "b"}, "git-state"},
		{"review_requested", conversation.Review{}, "review-requested"},
		{"pull_request", conversation.PullRequest{Operation: conversation.PullRequestCreate}, "pr-created"},
		{"pull_request", conversation.PullRequest{Operation: conversation.PullRequestUpdate}, "pr-updated"},
		{"review_result", conversation.ReviewResult{Findings: []conversation.Finding{}}, "review-result"},
	} {
		b.store.With(id, func(r *apitest.Row) { b.store.Append(r, e.kind, e.data) })
	}
	s := b.socket("/api/sessions/" + id + "/ws?after=0")
	require.Equal(t, []string{
		"init", "1 prompt", "2 status", "3 agentStatus", "4 message", "5 message.updated", "6 message.updated", "7 messages.removed", "8 chunk",
		"9 agentStatus", "10 agentStatus", "11 question", "12 question.resolved", "13 files-changed", "14 title", "15 error", "16 event", "17 event",
		"18 event", "19 event", "20 status", "21 screenshot", "22 git-state", "23 review-requested", "24 pr-created", "25 pr-updated", "26 review-result", "caught_up",
	}, s.brief(28))
}
