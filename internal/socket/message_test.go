package socket_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/feed"
	"github.com/overwinter-dev/overwinter/internal/socket"
)

var update = flag.Bool("update", false, "write the messages to testdata")

// logs returns recorded logs of real sessions, by name.
func logs(t *testing.T) map[string][]eventlog.Event {
	t.Helper()
	names, err := filepath.Glob("../terminal/testdata/*.ndjson")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	out := map[string][]eventlog.Event{}
	for _, name := range names {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		var events []eventlog.Event
		lines := bufio.NewScanner(bytes.NewReader(data))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			e, err := feed.Decode(bytes.Clone(lines.Bytes()))
			require.NoError(t, err)
			if e.Seq > 0 { // otherwise it is a marker
				events = append(events, e)
			}
		}
		require.NoError(t, lines.Err())
		out[strings.TrimSuffix(filepath.Base(name), ".ndjson")] = events
	}
	return out
}

// encoder is a protocol whose messages are not the events themselves.
type encoder interface {
	Encode(e eventlog.Event) ([][]byte, error)
}

// one returns the message of an event.
func one(messages [][]byte, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	if len(messages) != 1 {
		return nil, fmt.Errorf("%d messages", len(messages))
	}
	return messages[0], nil
}

func TestMessagesOfRecordedLogs(t *testing.T) {
	t.Parallel()
	for name, events := range logs(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkGolden(t, name+".messages", events, socket.Chat{})
			checkGolden(t, name+".blocks", events, socket.Blocks{})
		})
	}
}

// checkGolden compares the messages of a protocol with a file.
func checkGolden(t *testing.T, name string, events []eventlog.Event, p encoder) {
	t.Helper()
	var got bytes.Buffer
	for _, e := range events {
		messages, err := p.Encode(e)
		require.NoError(t, err)
		for _, data := range messages {
			got.Write(append(data, '\n'))
		}
	}
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(file, got.Bytes(), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got.String())
}

// The messages of Blocks contain the same information as the events.
func TestBlockEventsRebuildConversation(t *testing.T) {
	t.Parallel()
	names := map[string]conversation.EventType{
		"session:block:start": conversation.EventBlockStart, "session:block:delta": conversation.EventTextDelta, "session:block:update": conversation.EventBlockUpdate,
		"session:block:complete": conversation.EventBlockComplete, "session:block:removed": conversation.EventBlockRemoved,
	}
	for name, events := range logs(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want, got conversation.Folder
			for _, e := range events {
				require.NoError(t, want.Apply(conversation.EventType(e.Type), e.ConversationID, e.Data))
				messages, err := socket.Blocks{}.Encode(e)
				require.NoError(t, err)
				var m struct {
					Type string
					Seq  int64
					Data json.RawMessage
				}
				require.NoError(t, json.Unmarshal(messages[len(messages)-1], &m))
				require.Equal(t, e.Seq, m.Seq)
				var in struct{ SessionID, ConversationID string }
				require.NoError(t, json.Unmarshal(m.Data, &in))
				require.Equal(t, e.SessionID, in.SessionID)
				require.NoError(t, got.Apply(names[m.Type], in.ConversationID, m.Data))
			}
			require.Equal(t, want.Conversation(), got.Conversation())
			require.NotEmpty(t, got.Conversation().Threads[0].Blocks)
		})
	}
}

func TestSubagentIsAnnouncedBeforeItsBlock(t *testing.T) {
	t.Parallel()
	messages, err := socket.Blocks{}.Encode(eventlog.Event{
		Seq: 4, Type: "block_start", SessionID: "ses_1", Data: json.RawMessage(`{"block":{"id":"b","type":"subagent","status":"running","createdAt":"2026-01-02T03:04:05.678Z","subagentId":"s","name":"bob"}}`),
	})
	require.NoError(t, err)
	require.Len(t, messages, 2)
	require.JSONEq(t, `{"type":"session:subagent:discovered","data":{"sessionId":"ses_1","subagent":{"id":"s","name":"bob","status":"running"}}}`, string(messages[0]))
	require.Contains(t, string(messages[1]), `"type":"session:block:start","seq":4`)
}

// view is the conversation that a client builds from messages, by the rules of the documentation.
type view struct {
	order    []string
	messages map[string]map[string]any
}

func (v *view) take(t *testing.T, data []byte) {
	t.Helper()
	var m struct {
		Type string
		Data map[string]any
	}
	require.NoError(t, json.Unmarshal(data, &m))
	id, _ := m.Data["id"].(string)
	switch m.Type {
	case "message", "message.updated":
		if updates, ok := m.Data["updates"].(map[string]any); ok {
			if known := v.messages[id]; known != nil {
				if status, ok := updates["status"]; ok {
					known["status"] = status
				}
				if parts := known["parts"].([]any); len(parts) > 0 {
					maps.Copy(parts[0].(map[string]any), updates)
				}
			}
			return
		}
		if v.messages[id] == nil {
			v.order = append(v.order, id)
		}
		v.messages[id] = m.Data
	case "chunk":
		if known := v.messages[m.Data["messageId"].(string)]; known != nil {
			known["content"] = known["content"].(string) + m.Data["content"].(string)
		}
	case "messages.removed":
		for _, id := range m.Data["messageIds"].([]any) {
			delete(v.messages, id.(string))
		}
	}
}

// main returns the messages of the main conversation.
func (v *view) main() []any {
	out := []any{}
	for _, id := range v.order {
		if m := v.messages[id]; m != nil && m["conversationId"] == conversation.Main {
			out = append(out, m)
		}
	}
	return out
}

// At each position, a client has the same state as a client that connects there.
func TestMessagesRebuildHistory(t *testing.T) {
	t.Parallel()
	for name, events := range logs(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var fold conversation.Folder
			v := view{messages: map[string]map[string]any{}}
			for _, e := range events {
				require.NoError(t, fold.Apply(conversation.EventType(e.Type), e.ConversationID, e.Data))
				data, err := one(socket.Chat{}.Encode(e))
				require.NoError(t, err)
				v.take(t, data)
				history := socket.History(fold.Conversation())
				data, err = json.Marshal(history)
				require.NoError(t, err)
				var all []map[string]any
				require.NoError(t, json.Unmarshal(data, &all))
				want := []any{}
				for _, m := range all {
					if m["conversationId"] == conversation.Main {
						want = append(want, m)
					}
				}
				require.Equal(t, want, v.main(), "after %d %s", e.Seq, e.Type)
			}
			require.NotEmpty(t, v.main())
		})
	}
}

func TestOtherDataIsSentAsEvent(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	for _, c := range []struct{ kind, data, want string }{
		{"hologram", `{"a":[1]}`, `{"type":"hologram","data":{"a":[1]}}`},
		{"text_delta", `"x"`, `{"type":"text_delta","data":"x"}`},
		{"block_start", `{"block":{"id":7}}`, `{"type":"block_start","data":{"block":{"id":7}}}`},
		{"queue", `[]`, `{"type":"queue","data":[]}`},
	} {
		got, err := one(socket.Chat{}.Encode(eventlog.Event{Seq: 3, Type: c.kind, At: at, Data: json.RawMessage(c.data)}))
		require.NoError(t, err)
		require.JSONEq(t, `{"type":"event","seq":3,"at":"2026-01-02T03:04:05.006Z","data":`+c.want+`}`, string(got))
	}
}

func TestFieldsOfLaterReleasesStay(t *testing.T) {
	t.Parallel()
	for kind, data := range map[string]string{
		"status": `{"status":"running","later":1}`, "queue": `{"items":[],"later":1}`, "question": `{"question":{"id":"q","later":1}}`,
		"file": `{"path":"a","later":1}`, "settings": `{"later":1}`, "metadata_update": `{"later":1}`, "prompt": `{"prompt":{"later":1}}`, "turn_end": `{"later":1}`,
	} {
		for _, p := range []encoder{socket.Chat{}, socket.Blocks{}} {
			got, err := one(p.Encode(eventlog.Event{Seq: 1, Type: kind, Data: json.RawMessage(data)}))
			require.NoError(t, err)
			require.Contains(t, string(got), `"later":1`, "%T", p)
			require.True(t, json.Valid(got), "%s", got)
		}
	}
}

func FuzzEncode(f *testing.F) {
	for _, kind := range []string{"block_start", "block_complete", "block_update", "block_removed", "text_delta", "status", "queue", "question", "file", "title", "x"} {
		f.Add(kind, `{"block":{"id":"a","type":"tool_use"},"blockId":"a","delta":"b","updates":{"status":"running"},"items":[{"status":"queued"}]}`)
	}
	f.Fuzz(func(t *testing.T, kind, data string) {
		if !json.Valid([]byte(data)) {
			return // the log only contains JSON
		}
		for _, p := range []encoder{socket.Chat{}, socket.Blocks{}} {
			messages, err := p.Encode(eventlog.Event{Seq: 1, Type: kind, Data: json.RawMessage(data)})
			require.NoError(t, err)
			require.NotEmpty(t, messages)
			for _, m := range messages {
				require.True(t, json.Valid(m))
			}
		}
	})
}
