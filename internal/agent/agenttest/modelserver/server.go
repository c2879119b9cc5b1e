package modelserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Server answers on a loopback port until it is closed. Its methods are safe for concurrent use.
type Server struct {
	scripts map[string][]Step
	http    *httptest.Server
	ids     atomic.Int64

	mu       sync.Mutex
	requests []Request
	sent     [][]byte // the newest bodies, at most keptBodies
}

// keptBodies is how many request bodies Sent returns.
const keptBodies = 64

// Request is a request for one answer of the model.
type Request struct {
	Model   string
	Key     string   // API key or bearer token
	System  string   // system prompt; only for some APIs
	Tools   []string // names of the offered tools
	Offered string   // descriptions of the offered tools; only for some APIs
	Prompts []string // the prompts of people so far, with the agent's additions
	Answers int      // number of the model's answers so far
	Results int      // number of tool results so far
}

// New starts a server with scripts by name.
func New(scripts map[string][]Step) *Server {
	s := &Server{scripts: scripts}
	s.http = httptest.NewServer(s)
	return s
}

// URL returns the base URL of the API, for ANTHROPIC_BASE_URL.
func (s *Server) URL() string { return s.http.URL }

// Close aborts responses in progress and stops the server.
func (s *Server) Close() {
	s.http.CloseClientConnections()
	s.http.Close()
}

// Requests returns the requests of conversations so far, oldest first. It omits requests that an
// agent makes for itself, for example for a title.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Sent returns the unchanged bodies of the newest requests, of every API. Use it to check the
// requests of an agent to its model.
func (s *Server) Sent() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(bytes.Join(s.sent, []byte("\n")))
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the agent has disconnected
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.mu.Lock()
	s.sent = append(s.sent[max(0, len(s.sent)+1-keptBodies):], body)
	s.mu.Unlock()
	switch {
	case r.Method == http.MethodHead:
	case strings.HasSuffix(r.URL.Path, "/messages/count_tokens"):
		reply(w, http.StatusOK, map[string]any{"input_tokens": 100})
	case strings.HasSuffix(r.URL.Path, "/messages"):
		s.messages(w, r)
	case isGemini(r.URL.Path):
		s.gemini(w, r)
	case strings.HasSuffix(r.URL.Path, "/responses"):
		s.responses(w, r)
	default:
		fail(w, http.StatusNotFound, "there is no such endpoint")
	}
}

// messages answers POST /v1/messages.
func (s *Server) messages(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Model    string `json:"model"`
		Stream   bool   `json:"stream"`
		Thinking struct {
			Type string `json:"type"`
		} `json:"thinking"`
		System   json.RawMessage `json:"system"` // a text, or a list of parts
		Messages []inMessage     `json:"messages"`
		Tools    []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	history := read(q.Messages)
	request := Request{Model: q.Model, Key: r.Header.Get("X-Api-Key")}
	if request.Key == "" {
		request.Key = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	}
	request.System = string(q.System)
	for _, t := range q.Tools {
		request.Tools = append(request.Tools, t.Name)
	}
	for _, t := range history {
		switch {
		case t.model:
			request.Answers++
		case t.text != "":
			request.Prompts = append(request.Prompts, t.text)
		}
		request.Results += t.results
	}
	step := Step{Text: "A scripted conversation"}
	switch {
	case summarizes(request):
		step = Step{Text: "<summary>\nPrompts so far: " + strings.Join(request.Prompts[:len(request.Prompts)-1], "; ") + "\n</summary>"}
	case len(q.Tools) > 0:
		step = s.next(history)
		s.mu.Lock()
		s.requests = append(s.requests, request)
		s.mu.Unlock()
	}
	if step.Status != 0 {
		fail(w, step.Status, fmt.Sprintf("scripted error %d", step.Status))
		return
	}
	if step.Recall && len(request.Prompts) > 0 {
		step.Text += fmt.Sprintf("%d prompts; the first was: %s", len(request.Prompts), request.Prompts[0])
	}
	if q.Thinking.Type == "" || q.Thinking.Type == "disabled" {
		step.Thinking = ""
	}
	a := s.answer(q.Model, step, 100+10*len(history))
	if q.Stream {
		a.stream(w, r, step)
		return
	}
	reply(w, http.StatusOK, a.whole())
}

// summarizes reports whether the agent asks for a summary to compact its conversation.
func summarizes(r Request) bool {
	return len(r.Prompts) > 1 && strings.Contains(r.Prompts[len(r.Prompts)-1], "create a detailed summary")
}

// inMessage is a message of a request. Its content is a string or a list of parts.
type inMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// turn is the part of a message that scripts need.
type turn struct {
	model   bool
	text    string // written by people
	results int    // number of tool results
}

func read(messages []inMessage) []turn {
	var out []turn
	for _, m := range messages {
		if m.Role == "assistant" {
			out = append(out, turn{model: true})
			continue
		}
		if m.Role != "user" {
			continue
		}
		var t turn
		var parts []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}
		if json.Unmarshal(m.Content, &t.text) != nil && json.Unmarshal(m.Content, &parts) == nil {
			var texts []string
			for _, p := range parts {
				switch {
				case p.Type == "tool_result":
					t.results++
				case p.Type == "text" && !strings.HasPrefix(p.Text, "<system-reminder>"):
					texts = append(texts, p.Text)
				}
			}
			t.text = strings.Join(texts, "\n")
		}
		out = append(out, t)
	}
	return out
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) //nolint:errchkjson // the agent may have disconnected
}

// fail answers with an error of the API.
func fail(w http.ResponseWriter, status int, message string) {
	kinds := map[int]string{
		http.StatusBadRequest: "invalid_request_error", http.StatusUnauthorized: "authentication_error",
		http.StatusNotFound: "not_found_error", http.StatusTooManyRequests: "rate_limit_error", 529: "overloaded_error",
	}
	kind, ok := kinds[status]
	if !ok {
		kind = "api_error"
	}
	reply(w, status, map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": message}})
}
