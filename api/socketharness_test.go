package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// payloads are the schemas of the messages of asyncapi.yaml, by the type of the message.
var payloads = sync.OnceValue(func() map[string]*jsonschema.Schema {
	data, err := os.ReadFile("asyncapi.yaml")
	if err != nil {
		panic(err)
	}
	var doc any
	if err := yaml.Unmarshal(data, &doc); err != nil {
		panic(err)
	}
	plain, err := json.Marshal(doc)
	if err != nil {
		panic(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(plain))
	if err != nil {
		panic(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("asyncapi.json", value); err != nil {
		panic(err)
	}
	out := map[string]*jsonschema.Schema{}
	for key, m := range doc.(map[string]any)["components"].(map[string]any)["messages"].(map[string]any) {
		name, ok := m.(map[string]any)["name"].(string)
		if !ok {
			name = key
		}
		out[name] = compiler.MustCompile("asyncapi.json#/components/messages/" + key + "/payload")
	}
	return out
})

// sock is a WebSocket that a test reads.
type sock struct {
	t    testing.TB
	conn *websocket.Conn
}

// serverMessage is a message from the server.
type serverMessage struct {
	Type           string
	Seq            int64
	ConversationID string
	ID, For        string
	Data           json.RawMessage
	Session        json.RawMessage
}

func (b *harness) dial(path string, header http.Header, protocols ...string) (*websocket.Conn, *http.Response, error) {
	return websocket.Dial(b.t.Context(), strings.Replace(b.url, "http", "ws", 1)+path, &websocket.DialOptions{HTTPClient: b.client, HTTPHeader: header, Subprotocols: protocols})
}

func (b *harness) socket(path string) *sock {
	b.t.Helper()
	conn, _, err := b.dial(path, b.headers) //nolint:bodyclose // the connection has it
	require.NoError(b.t, err)
	conn.SetReadLimit(32 << 20)
	b.t.Cleanup(func() { _ = conn.CloseNow() })
	return &sock{b.t, conn}
}

// refused requires that the response to a handshake is a problem.
func (b *harness) refused(path string, status int, code string, header http.Header) {
	b.t.Helper()
	conn, resp, err := b.dial(path, header) //nolint:bodyclose // it is in memory
	if err == nil {
		_ = conn.CloseNow()
	}
	require.Error(b.t, err)
	require.Equal(b.t, status, resp.StatusCode)
	var p problem
	require.NoError(b.t, json.NewDecoder(resp.Body).Decode(&p))
	require.Equal(b.t, code, p.Code)
}

// next reads a message and checks it against the document.
func (s *sock) next() serverMessage {
	s.t.Helper()
	m, err := s.read()
	require.NoError(s.t, err)
	return m
}

func (s *sock) read() (m serverMessage, err error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), waitLimit)
	defer cancel()
	kind, data, err := s.conn.Read(ctx)
	if err != nil {
		return m, err
	}
	require.Equal(s.t, websocket.MessageText, kind)
	require.NoError(s.t, json.Unmarshal(data, &m))
	schema := payloads()[m.Type]
	require.NotNil(s.t, schema, "%s is not in the document", m.Type)
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	require.NoError(s.t, err)
	require.NoError(s.t, schema.Validate(value), "%s", data)
	return m, nil
}

// brief reads n messages, each as its type, and its seq if it has one.
func (s *sock) brief(n int) []string {
	s.t.Helper()
	var out []string
	for range n {
		m := s.next()
		if m.Seq > 0 && !strings.HasSuffix(m.Type, "init") {
			m.Type = fmt.Sprintf("%d %s", m.Seq, m.Type)
		}
		out = append(out, m.Type)
	}
	return out
}

// closed reads to the end of the connection and returns its close code.
func (s *sock) closed() websocket.StatusCode {
	s.t.Helper()
	for {
		if _, err := s.read(); err != nil {
			return websocket.CloseStatus(err)
		}
	}
}

func (s *sock) send(text string) {
	s.t.Helper()
	require.NoError(s.t, s.conn.Write(s.t.Context(), websocket.MessageText, []byte(text)))
}

// ask sends a request and returns its answer. It skips events that arrive before the answer.
func (s *sock) ask(text string) serverMessage {
	s.t.Helper()
	s.send(text)
	for {
		if m := s.next(); m.Seq == 0 && m.Type != "caught_up" && m.Type != "question" {
			return m
		}
	}
}

// refusal sends a request and returns the code and the message of the error.
func (s *sock) refusal(text string) (code, message string, m serverMessage) {
	s.t.Helper()
	m = s.ask(text)
	require.Equal(s.t, "error", m.Type, "%s", m.Data)
	var p struct{ Code, Message string }
	require.NoError(s.t, json.Unmarshal(m.Data, &p))
	return p.Code, p.Message, m
}

func block(id string, kind conversation.BlockType, text string) conversation.Block {
	return conversation.Block{ID: id, Type: kind, Status: conversation.Complete, CreatedAt: time.Now(), Content: text}
}
