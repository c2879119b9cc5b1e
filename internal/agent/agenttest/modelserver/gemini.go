package modelserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// The parts of Google's API that Gemini CLI uses.
const (
	geminiStream = ":streamGenerateContent"
	geminiWhole  = ":generateContent"
	geminiCount  = ":countTokens"
)

// contextTag starts the text that Gemini CLI sends the model before the first prompt.
const contextTag = "<session_context>"

// thoughtTokens is the number of thought tokens that every answer with thoughts reports.
const thoughtTokens = 17

// Shell calls the shell of Gemini CLI.
func Shell(command string) Call {
	return Call{Tool: "run_shell_command", Input: map[string]any{"command": command, "description": "Run a command"}}
}

// ReadFile makes Gemini CLI read a file.
func ReadFile(path string) Call {
	return Call{Tool: "read_file", Input: map[string]any{"file_path": path}}
}

// Delegate makes a subagent of Gemini CLI, such as "generalist", follow a prompt.
func Delegate(name, prompt string) Call {
	return Call{Tool: "invoke_agent", Input: map[string]any{"agent_name": name, "prompt": prompt}}
}

// isGemini reports whether a path belongs to Google's API.
func isGemini(path string) bool {
	return strings.HasSuffix(path, geminiStream) || strings.HasSuffix(path, geminiWhole) || strings.HasSuffix(path, geminiCount)
}

type geminiPart struct {
	Text             string          `json:"text"`
	FunctionResponse json.RawMessage `json:"functionResponse"`
}

type geminiContent struct {
	Role  string       `json:"role"`
	Parts []geminiPart `json:"parts"`
}

type geminiRequest struct {
	Contents          []geminiContent `json:"contents"`
	SystemInstruction geminiContent   `json:"systemInstruction"`
	Tools             []struct {
		FunctionDeclarations []struct {
			Name        string `json:"name"`
			Description string `json:"description"`
		} `json:"functionDeclarations"`
	} `json:"tools"`
	GenerationConfig struct {
		Schema json.RawMessage `json:"responseJsonSchema"`
		Type   string          `json:"responseMimeType"`
	} `json:"generationConfig"`
}

// turns returns the history for scripts, without the text that the agent adds at the start.
func (q geminiRequest) turns() []turn {
	var out []turn
	for _, c := range q.Contents {
		if c.Role == "model" {
			out = append(out, turn{model: true})
			continue
		}
		var t turn
		var texts []string
		for _, p := range c.Parts {
			switch {
			case len(p.FunctionResponse) > 0:
				t.results++
			case p.Text != "" && !strings.HasPrefix(p.Text, contextTag):
				texts = append(texts, p.Text)
			}
		}
		t.text = strings.Join(texts, "\n")
		out = append(out, t)
	}
	return out
}

// gemini answers POST /v1beta/models/<model>:<method>.
func (s *Server) gemini(w http.ResponseWriter, r *http.Request) {
	model, method, _ := strings.Cut(r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:], ":")
	var q geminiRequest
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		failGemini(w, http.StatusBadRequest, err.Error())
		return
	}
	if ":"+method == geminiCount {
		reply(w, http.StatusOK, object{"totalTokens": 100})
		return
	}
	history := q.turns()
	request := Request{Model: model, Key: r.Header.Get("X-Goog-Api-Key")}
	for _, p := range q.SystemInstruction.Parts {
		request.System += p.Text
	}
	for _, c := range q.Contents {
		for _, p := range c.Parts {
			if strings.HasPrefix(p.Text, contextTag) {
				request.System += "\n" + p.Text
			}
		}
	}
	for _, t := range q.Tools {
		for _, f := range t.FunctionDeclarations {
			request.Tools = append(request.Tools, f.Name)
			request.System += "\n" + f.Name + ": " + f.Description
		}
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
	case len(q.GenerationConfig.Schema) > 0 || q.GenerationConfig.Type == "application/json":
		step.Text = `{"reasoning":"scripted","next_speaker":"user","summary":"A scripted conversation"}`
	case len(request.Tools) > 0:
		step = s.next(history)
		s.mu.Lock()
		s.requests = append(s.requests, request)
		s.mu.Unlock()
	}
	if step.Status != 0 {
		failGemini(w, step.Status, fmt.Sprintf("scripted error %d", step.Status))
		return
	}
	if step.Recall && len(request.Prompts) > 0 {
		step.Text += fmt.Sprintf("%d prompts; the first was: %s", len(request.Prompts), request.Prompts[0])
	}
	for _, tool := range request.Tools {
		if tool == "complete_task" && len(step.Calls) == 0 {
			// A subagent ends with this call.
			step.Calls = []Call{{Tool: tool, Input: object{"result": object{"response": step.Text}}}}
		}
	}
	s.answerGemini(w, r, model, step, 100+10*len(history), ":"+method == geminiStream)
}

func (s *Server) answerGemini(w http.ResponseWriter, r *http.Request, model string, step Step, input int, stream bool) {
	// The time keeps ids of different servers distinct, because a session may outlive a server.
	id := fmt.Sprintf("%d_%d", time.Now().UnixNano(), s.ids.Add(1))
	var parts []object
	thoughts := 0
	if step.Thinking != "" {
		thoughts = thoughtTokens
		parts = append(parts, object{"text": "**Considering**\n\n" + step.Thinking, "thought": true})
	}
	if step.Text != "" {
		for _, c := range chunks(step.Text) {
			parts = append(parts, object{"text": c})
		}
	}
	for i, c := range step.Calls {
		parts = append(parts, object{"functionCall": object{"id": fmt.Sprintf("call_%s_%d", id, i), "name": c.Tool, "args": c.Input}})
	}
	body := func(parts []object, last bool) object {
		candidate := object{"content": object{"role": "model", "parts": parts}, "index": 0}
		if last {
			candidate["finishReason"] = "STOP"
		}
		return object{
			"candidates": []object{candidate}, "modelVersion": model, "responseId": id,
			"usageMetadata": object{
				"promptTokenCount": input, "candidatesTokenCount": outputTokens, "thoughtsTokenCount": thoughts,
				"totalTokenCount": input + outputTokens + thoughts,
			},
		}
	}
	if !stream {
		if step.Text != "" {
			parts = []object{{"text": step.Text}}
		}
		reply(w, http.StatusOK, body(parts, true))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := writer{w: w, r: r, pause: step.Pause, hold: step.Hold}
	for i, p := range parts {
		if step.Cut && i > len(parts)/2 {
			panic(http.ErrAbortHandler)
		}
		out.data(body([]object{p}, i == len(parts)-1))
		out.wait()
	}
}

// data writes an event without a name.
func (o writer) data(v object) {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("modelserver: encode: %v", err)) // the script is not valid JSON
	}
	if _, err := fmt.Fprintf(o.w, "data: %s\n\n", data); err != nil {
		panic(http.ErrAbortHandler)
	}
	_ = http.NewResponseController(o.w).Flush() // the next write reports it
}

// failGemini answers with an error of Google's API.
func failGemini(w http.ResponseWriter, status int, message string) {
	kinds := map[int]string{
		http.StatusBadRequest: "INVALID_ARGUMENT", http.StatusUnauthorized: "UNAUTHENTICATED", http.StatusNotFound: "NOT_FOUND",
		http.StatusTooManyRequests: "RESOURCE_EXHAUSTED", http.StatusServiceUnavailable: "UNAVAILABLE",
	}
	kind, ok := kinds[status]
	if !ok {
		kind = "INTERNAL"
	}
	reply(w, status, object{"error": object{"code": status, "message": message, "status": kind}})
}
