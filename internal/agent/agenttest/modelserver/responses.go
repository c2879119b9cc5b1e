package modelserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Exec calls the shell of Codex, from JavaScript if the model has the shell only there.
func Exec(command string) Call {
	return Call{Tool: "exec_command", Input: map[string]any{"cmd": command}}
}

// Patch makes Codex add a file.
func Patch(path, line string) Call {
	return Call{Tool: "apply_patch", Input: "*** Begin Patch\n*** Add File: " + path + "\n+" + line + "\n*** End Patch\n"}
}

// Script runs JavaScript that calls the tools of Codex, for models that cannot call them directly.
func Script(code string) Call { return Call{Tool: "exec", Input: code} }

// AskUser makes Codex ask its user a question.
func AskUser(question string, options ...string) Call {
	list := make([]map[string]any, len(options))
	for i, o := range options {
		list[i] = map[string]any{"label": o, "description": "It is " + o}
	}
	return Call{Tool: "request_user_input", Input: map[string]any{"questions": []map[string]any{{
		"id": "choice", "header": "Choice", "question": question, "options": list,
	}}}}
}

// Spawn makes a subagent of Codex follow a prompt.
func Spawn(name, prompt string) Call {
	return Call{Tool: "spawn_agent", Input: map[string]any{"message": prompt, "task_name": name, "fork_turns": "none"}}
}

// AwaitAgents makes Codex wait for its subagents.
func AwaitAgents() Call {
	return Call{Tool: "wait_agent", Input: map[string]any{"timeout_ms": 10000}}
}

// harnessTexts are the beginnings of texts that Codex sends the model in the name of its user.
var harnessTexts = []string{"<", "# AGENTS.md instructions"}

// responsesTool is an offered tool, or a namespace of tools.
type responsesTool struct {
	Type  string          `json:"type"`
	Name  string          `json:"name"`
	Tools []responsesTool `json:"tools"`
}

type responsesItem struct {
	Type    string          `json:"type"`
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	Tools   []responsesTool `json:"tools"`
}

// text returns the text of an item. It includes messages between agents.
func (i responsesItem) text() string {
	var s string
	if json.Unmarshal(i.Content, &s) == nil {
		return s
	}
	var parts []struct {
		Text      string `json:"text"`
		Encrypted string `json:"encrypted_content"`
	}
	if json.Unmarshal(i.Content, &parts) != nil {
		return ""
	}
	var out []string
	for _, p := range parts {
		out = append(out, p.Text+p.Encrypted)
	}
	return strings.Join(out, "\n")
}

type responsesRequest struct {
	Model        string          `json:"model"`
	Instructions string          `json:"instructions"`
	Input        []responsesItem `json:"input"`
	RawTools     json.RawMessage `json:"tools"`
	tools        []responsesTool
}

// offer returns the location of each offered tool, by name.
func (q responsesRequest) offer() map[string]offered {
	out := map[string]offered{}
	var add func(namespace string, tools []responsesTool)
	add = func(namespace string, tools []responsesTool) {
		for _, t := range tools {
			if len(t.Tools) > 0 {
				add(t.Name, t.Tools)
				continue
			}
			out[t.Name] = offered{kind: t.Type, namespace: namespace}
		}
	}
	add("", q.tools)
	for _, i := range q.Input {
		add("", i.Tools)
	}
	return out
}

type offered struct{ kind, namespace string }

// turns returns the history for scripts, and the text that the agent itself has sent to the model.
func (q responsesRequest) turns() (history []turn, system string) {
	system = q.Instructions
	for _, i := range q.Input {
		text := i.text()
		switch {
		case i.Type == "agent_message", i.Role == "user":
			own := false
			for _, start := range harnessTexts {
				own = own || (i.Type != "agent_message" && strings.HasPrefix(text, start))
			}
			if own {
				system += "\n" + text
				continue
			}
			history = append(history, turn{text: text})
		case i.Role == "developer", i.Role == "system":
			system += "\n" + text
		case strings.HasSuffix(i.Type, "_output"):
			history = append(history, turn{results: 1})
		case i.Role == "assistant", i.Type == "reasoning", strings.HasSuffix(i.Type, "_call"):
			if len(history) == 0 || !history[len(history)-1].model {
				history = append(history, turn{model: true})
			}
		}
	}
	return history, system
}

// responses answers POST /v1/responses of OpenAI's API, which Codex speaks.
func (s *Server) responses(w http.ResponseWriter, r *http.Request) {
	var q responsesRequest
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		failResponses(w, http.StatusBadRequest, err.Error())
		return
	}
	if err := json.Unmarshal(q.RawTools, &q.tools); len(q.RawTools) > 0 && err != nil {
		failResponses(w, http.StatusBadRequest, err.Error())
		return
	}
	history, system := q.turns()
	request := Request{Model: q.Model, Key: strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), System: system, Offered: string(q.RawTools)}
	offer := q.offer()
	for name := range offer {
		request.Tools = append(request.Tools, name)
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
	s.mu.Lock()
	s.requests = append(s.requests, request)
	s.mu.Unlock()
	step := s.next(history)
	if step.Status != 0 {
		failResponses(w, step.Status, fmt.Sprintf("scripted error %d", step.Status))
		return
	}
	if step.Recall && len(request.Prompts) > 0 {
		step.Text += fmt.Sprintf("%d prompts; the first was: %s", len(request.Prompts), request.Prompts[0])
	}
	a := responsesAnswer{
		out: writer{w: w, r: r, pause: step.Pause, hold: step.Hold}, id: fmt.Sprintf("resp_%d_%d", time.Now().UnixNano(), s.ids.Add(1)), model: q.Model, offer: offer,
	}
	w.Header().Set("Content-Type", "text/event-stream")
	a.stream(step, 100+10*len(history))
}

// responsesAnswer is an answer being written.
type responsesAnswer struct {
	out      writer
	id       string
	model    string
	offer    map[string]offered
	sequence int
	items    []object
}

func (a *responsesAnswer) event(kind string, fields object) {
	fields["type"], fields["sequence_number"] = kind, a.sequence
	a.sequence++
	a.out.event(fields)
}

func (a *responsesAnswer) response(status string) object {
	return object{
		"id": a.id, "object": "response", "created_at": time.Now().Unix(), "status": status, "model": a.model, "output": a.items,
	}
}

func (a *responsesAnswer) done(item object) {
	a.event("response.output_item.done", object{"output_index": len(a.items), "item": item})
	a.items = append(a.items, item)
}

func (a *responsesAnswer) stream(step Step, tokens int) {
	a.event("response.created", object{"response": a.response("in_progress")})
	if step.Thinking != "" {
		a.think(step.Thinking)
	}
	if step.Text != "" {
		a.say(step)
	}
	for i, c := range step.Calls {
		a.call(i, c)
	}
	end := a.response("completed")
	end["usage"] = object{
		"input_tokens": tokens, "input_tokens_details": object{"cached_tokens": 0},
		"output_tokens": 42, "output_tokens_details": object{"reasoning_tokens": 7}, "total_tokens": tokens + 42,
	}
	a.event("response.completed", object{"response": end})
}

func (a *responsesAnswer) think(thought string) {
	id, index := fmt.Sprintf("rs_%s", a.id), len(a.items)
	summary := []object{{"type": "summary_text", "text": thought}}
	a.event("response.output_item.added", object{"output_index": index, "item": object{"id": id, "type": "reasoning", "summary": []object{}}})
	a.event("response.reasoning_summary_part.added", object{
		"item_id": id, "output_index": index, "summary_index": 0, "part": object{"type": "summary_text", "text": ""},
	})
	for _, w := range chunks(thought) {
		a.event("response.reasoning_summary_text.delta", object{"item_id": id, "output_index": index, "summary_index": 0, "delta": w})
		a.out.wait()
	}
	a.done(object{"id": id, "type": "reasoning", "summary": summary, "encrypted_content": "bm9uZQ=="})
}

func (a *responsesAnswer) say(step Step) {
	id, index := fmt.Sprintf("msg_%s_%d", a.id, len(a.items)), len(a.items)
	item := object{"id": id, "type": "message", "role": "assistant", "status": "in_progress", "content": []object{}}
	a.event("response.output_item.added", object{"output_index": index, "item": item})
	part := object{"type": "output_text", "text": "", "annotations": []object{}}
	a.event("response.content_part.added", object{"item_id": id, "output_index": index, "content_index": 0, "part": part})
	words := chunks(step.Text)
	for i, w := range words {
		if step.Cut && i > len(words)/2 {
			panic(http.ErrAbortHandler)
		}
		a.event("response.output_text.delta", object{"item_id": id, "output_index": index, "content_index": 0, "delta": w})
		a.out.wait()
	}
	a.done(object{
		"id": id, "type": "message", "role": "assistant", "status": "completed",
		"content": []object{{"type": "output_text", "text": step.Text, "annotations": []object{}}},
	})
}

func (a *responsesAnswer) call(n int, c Call) {
	tool, ok := a.offer[c.Tool]
	if script, can := a.offer["exec"]; !ok && can {
		c, tool = fromScript(c), script
	}
	item := object{
		"id": fmt.Sprintf("fc_%s_%d", a.id, len(a.items)), "type": "function_call", "status": "completed",
		"call_id": fmt.Sprintf("call_%s_%d", a.id, n), "name": c.Tool,
	}
	if tool.namespace != "" {
		item["namespace"] = tool.namespace
	}
	if input, ok := c.Input.(string); ok {
		item["type"], item["input"] = "custom_tool_call", input
	} else {
		input, err := json.Marshal(c.Input)
		if err != nil {
			panic(fmt.Sprintf("modelserver: input of %s: %v", c.Tool, err)) // the script is not valid JSON
		}
		item["arguments"] = string(input)
	}
	a.event("response.output_item.added", object{"output_index": len(a.items), "item": item})
	a.done(item)
}

// fromScript wraps a call in JavaScript, for models that have most of their tools there.
func fromScript(c Call) Call {
	input, err := json.Marshal(c.Input)
	if err != nil {
		panic(fmt.Sprintf("modelserver: input of %s: %v", c.Tool, err)) // the script is not valid JSON
	}
	return Script("text(JSON.stringify(await tools." + c.Tool + "(" + string(input) + ")))")
}

// failResponses answers with an error of OpenAI's API.
func failResponses(w http.ResponseWriter, status int, message string) {
	reply(w, status, object{"error": object{"message": message, "type": "scripted", "code": nil, "param": nil}})
}
