package modelserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

type object = map[string]any

// answer is one message of the model.
type answer struct {
	id, model, stop string
	parts           []object
	input           int
}

// outputTokens is the number of output tokens that every answer reports.
const outputTokens = 42

func (s *Server) answer(model string, step Step, input int) answer {
	n := s.ids.Add(1)
	// The time keeps ids of different servers distinct, because a session may outlive a server.
	a := answer{id: fmt.Sprintf("msg_%d_%d", time.Now().UnixNano(), n), model: model, stop: "end_turn", input: input}
	if step.Thinking != "" {
		a.parts = append(a.parts, object{"type": "thinking", "thinking": step.Thinking, "signature": "c2lnbmVk"})
	}
	if step.Text != "" {
		a.parts = append(a.parts, object{"type": "text", "text": step.Text})
	}
	for i, c := range step.Calls {
		a.stop = "tool_use"
		a.parts = append(a.parts, object{
			"type": "tool_use", "id": fmt.Sprintf("toolu_%s_%d", a.id[len("msg_"):], i), "name": c.Tool, "input": c.Input,
		})
	}
	return a
}

func (a answer) usage(output int) object {
	return object{
		"input_tokens": a.input, "output_tokens": output,
		"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "service_tier": "standard",
	}
}

func (a answer) head(content []object, stop any, output int) object {
	return object{
		"id": a.id, "type": "message", "role": "assistant", "model": a.model, "content": content,
		"stop_reason": stop, "stop_sequence": nil, "usage": a.usage(output),
	}
}

// whole returns the answer to a request without streaming.
func (a answer) whole() object { return a.head(a.parts, a.stop, outputTokens) }

// stream writes the answer in pieces. It stops when the agent has disconnected.
func (a answer) stream(w http.ResponseWriter, r *http.Request, step Step) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Request-Id", "req_"+a.id)
	out := writer{w: w, r: r, pause: step.Pause, hold: step.Hold}
	out.event(object{"type": "message_start", "message": a.head([]object{}, nil, 1)})
	for i, p := range a.parts {
		start, deltas := pieces(p)
		out.event(object{"type": "content_block_start", "index": i, "content_block": start})
		for n, d := range deltas {
			if step.Cut && p["type"] == "text" && n > len(deltas)/2 {
				panic(http.ErrAbortHandler)
			}
			out.event(object{"type": "content_block_delta", "index": i, "delta": d})
			out.wait()
		}
		out.event(object{"type": "content_block_stop", "index": i})
	}
	out.event(object{
		"type": "message_delta", "delta": object{"stop_reason": a.stop, "stop_sequence": nil}, "usage": a.usage(outputTokens),
	})
	out.event(object{"type": "message_stop"})
}

// pieces splits a part into the events that the API streams.
func pieces(p object) (start object, deltas []object) {
	switch p["type"] {
	case "thinking":
		for _, w := range chunks(p["thinking"].(string)) {
			deltas = append(deltas, object{"type": "thinking_delta", "thinking": w})
		}
		deltas = append(deltas, object{"type": "signature_delta", "signature": p["signature"]})
		return object{"type": "thinking", "thinking": "", "signature": ""}, deltas
	case "text":
		for _, w := range chunks(p["text"].(string)) {
			deltas = append(deltas, object{"type": "text_delta", "text": w})
		}
		return object{"type": "text", "text": ""}, deltas
	}
	input, err := json.Marshal(p["input"])
	if err != nil {
		panic(fmt.Sprintf("modelserver: input of %s: %v", p["name"], err)) // the script is not valid JSON
	}
	const size = 16
	for from := 0; from < len(input); from += size {
		deltas = append(deltas, object{"type": "input_json_delta", "partial_json": string(input[from:min(from+size, len(input))])})
	}
	return object{"type": "tool_use", "id": p["id"], "name": p["name"], "input": object{}}, deltas
}

// chunks splits a text into words, each with the space after it.
func chunks(s string) []string { return strings.SplitAfter(s, " ") }

// writer writes server-sent events.
type writer struct {
	w     http.ResponseWriter
	r     *http.Request
	pause time.Duration
	hold  <-chan struct{}
}

func (o writer) event(v object) {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("modelserver: encode: %v", err)) // the script is not valid JSON
	}
	if _, err := fmt.Fprintf(o.w, "event: %s\ndata: %s\n\n", v["type"], data); err != nil {
		panic(http.ErrAbortHandler)
	}
	_ = http.NewResponseController(o.w).Flush() // the next write reports it
}

// wait waits between two pieces.
func (o writer) wait() {
	if o.hold != nil {
		select {
		case <-o.hold:
		case <-o.r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
	if o.pause == 0 {
		return
	}
	timer := time.NewTimer(o.pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-o.r.Context().Done():
		panic(http.ErrAbortHandler)
	}
}
