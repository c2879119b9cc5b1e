package acp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// scripted is a small agent that speaks the protocol. The last text block of a prompt contains its
// instructions.
type scripted struct {
	out     sync.Mutex
	w       io.Writer
	load    bool   // supports loading sessions, which are stored below home
	home    string //
	session string
	memory  []string // all prompts so far

	mu      sync.Mutex
	cancel  context.CancelFunc
	waiting map[string]chan json.RawMessage // responses to its requests
	asked   int
}

type wire struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  any             `json:"result,omitempty"`
	Error   any             `json:"error,omitempty"`
}

type object = map[string]any

// runScripted serves one client until its input ends.
func runScripted(args []string, r io.Reader, w io.Writer) int {
	a := &scripted{w: w, home: os.Getenv("HOME"), waiting: map[string]chan json.RawMessage{}}
	for _, arg := range args {
		a.load = a.load || arg == "--load"
	}
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return 0
		}
		var m struct {
			wire
			Result json.RawMessage `json:"result"`
		}
		if json.Unmarshal(line, &m) != nil {
			continue
		}
		if m.Method == "" {
			a.mu.Lock()
			if answer := a.waiting[string(m.ID)]; answer != nil {
				answer <- m.Result
			}
			a.mu.Unlock()
			continue
		}
		a.serve(m.wire)
	}
}

func (a *scripted) send(m wire) {
	m.Version = "2.0"
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	a.out.Lock()
	defer a.out.Unlock()
	_, _ = a.w.Write(append(b, '\n'))
}

func (a *scripted) file() string { return filepath.Join(a.home, ".scripted", a.session+".json") }

func (a *scripted) serve(m wire) {
	var p struct {
		SessionID string `json:"sessionId"`
		Prompt    []struct {
			Text string `json:"text"`
		} `json:"prompt"`
		ModelID string `json:"modelId"`
	}
	_ = json.Unmarshal(m.Params, &p)
	switch m.Method {
	case "initialize":
		a.send(wire{ID: m.ID, Result: object{"protocolVersion": 1, "agentCapabilities": object{"loadSession": a.load}}})
	case "session/new":
		a.session = fmt.Sprintf("scripted-%d", time.Now().UnixNano())
		a.send(wire{ID: m.ID, Result: object{"sessionId": a.session}})
	case "session/load":
		a.session = p.SessionID
		data, err := os.ReadFile(a.file())
		if err != nil {
			a.send(wire{ID: m.ID, Error: object{"code": -32002, "message": "there is no such session"}})
			return
		}
		_ = json.Unmarshal(data, &a.memory)
		for _, s := range a.memory {
			a.update(object{"sessionUpdate": "user_message_chunk", "content": object{"type": "text", "text": s}})
			a.say("As I said.")
		}
		a.send(wire{ID: m.ID, Result: object{}})
	case "session/set_model":
		if p.ModelID != "clever" {
			a.send(wire{ID: m.ID, Error: object{"code": -32602, "message": "there is no such model"}})
			return
		}
		a.send(wire{ID: m.ID, Result: object{}})
	case "session/cancel":
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.cancel != nil {
			a.cancel()
		}
	case "session/prompt":
		ctx, cancel := context.WithCancel(context.Background())
		a.mu.Lock()
		a.cancel = cancel
		a.mu.Unlock()
		for _, part := range p.Prompt {
			a.memory = append(a.memory, part.Text)
		}
		if a.load {
			data, err := json.Marshal(a.memory)
			if err != nil {
				panic(err)
			}
			_ = os.MkdirAll(filepath.Dir(a.file()), 0o700)
			_ = os.WriteFile(a.file(), data, 0o600)
		}
		go func() {
			defer cancel()
			a.prompt(ctx, m.ID, p.Prompt[len(p.Prompt)-1].Text)
		}()
	default:
		a.send(wire{ID: m.ID, Error: object{"code": -32601, "message": "no such method"}})
	}
}

func (a *scripted) update(u object) {
	b, err := json.Marshal(object{"sessionId": a.session, "update": u})
	if err != nil {
		panic(err)
	}
	a.send(wire{Method: "session/update", Params: b})
}

func (a *scripted) say(text string) {
	a.update(object{"sessionUpdate": "agent_message_chunk", "content": object{"type": "text", "text": text}})
}

// ask requests permission and reports whether it was granted.
func (a *scripted) ask(ctx context.Context, call object) bool {
	a.mu.Lock()
	a.asked++
	id := fmt.Sprint(a.asked)
	answer := make(chan json.RawMessage, 1)
	a.waiting[id] = answer
	a.mu.Unlock()
	params, err := json.Marshal(object{"sessionId": a.session, "toolCall": call, "options": []object{
		{"optionId": "yes-ever", "name": "Always", "kind": "allow_always"},
		{"optionId": "yes", "name": "Yes", "kind": "allow_once"},
		{"optionId": "no", "name": "No", "kind": "reject_once"},
	}})
	if err != nil {
		panic(err)
	}
	a.send(wire{ID: json.RawMessage(id), Method: "session/request_permission", Params: params})
	select {
	case raw := <-answer:
		return strings.Contains(string(raw), `"yes`)
	case <-ctx.Done():
		return false
	}
}

// prompt executes the action that the first word of a prompt names.
func (a *scripted) prompt(ctx context.Context, id json.RawMessage, text string) {
	word, rest, _ := strings.Cut(text, " ")
	call := fmt.Sprintf("call-%d", time.Now().UnixNano())
	stop := "end_turn"
	tool := func(title string, input any) {
		a.update(object{"sessionUpdate": "tool_call", "toolCallId": call, "title": title, "kind": "execute", "status": "in_progress", "rawInput": input})
	}
	ended := func(status, output string) {
		a.update(object{"sessionUpdate": "tool_call_update", "toolCallId": call, "status": status, "content": []object{
			{"type": "content", "content": object{"type": "text", "text": output}},
		}})
	}
	switch word {
	case "hello":
		a.say("Hello ")
		a.say("to you.")
	case "recall":
		a.say("I remember: " + strings.Join(a.memory, "; "))
	case "write":
		a.say("I write.")
		name, content, _ := strings.Cut(rest, " ")
		tool("write_file", object{"path": name, "content": content})
		_ = os.WriteFile(name, []byte(content), 0o600)
		ended("completed", "written")
		a.say("Done.")
	case "guarded":
		name, content, _ := strings.Cut(rest, " ")
		a.update(object{"sessionUpdate": "tool_call", "toolCallId": call, "title": "write_file", "kind": "edit", "status": "pending", "rawInput": object{"path": name}})
		if a.ask(ctx, object{"toolCallId": call, "title": "write_file", "kind": "edit"}) {
			_ = os.WriteFile(name, []byte(content), 0o600)
			ended("completed", "written")
		} else {
			ended("failed", "not allowed")
		}
		a.say("So be it.")
	case "parallel":
		a.say("Two at once.")
		first := call
		tool("one", object{"n": 1})
		call += "-b"
		tool("two", object{"n": 2})
		ended("completed", "2")
		call = first
		ended("completed", "1")
		a.say("Both are done.")
	case "fail":
		tool("read it", object{"path": "nowhere"})
		ended("failed", "there is no such file")
		a.say("That did not work.")
	case "think":
		a.update(object{"sessionUpdate": "agent_thought_chunk", "content": object{"type": "text", "text": "Should I? "}})
		a.update(object{"sessionUpdate": "agent_thought_chunk", "content": object{"type": "text", "text": "I should."}})
		a.say("Yes.")
	case "long":
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for ctx.Err() == nil {
			a.say("word ")
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
	case "wait":
		a.say("This takes long.")
		tool("wait", object{"for": "ever"})
		<-ctx.Done()
	case "silence":
		<-ctx.Done()
	case "files":
		a.send(wire{ID: json.RawMessage(`"fs"`), Method: "fs/read_text_file", Params: json.RawMessage(`{}`)})
		a.say("I have asked.")
	case "error":
		a.send(wire{ID: id, Error: object{"code": -32603, "message": "the model is out of order"}})
		return
	case "unauthorized":
		a.send(wire{ID: id, Error: object{"code": -32000, "message": "Authentication required"}})
		return
	case "forbidden":
		a.send(wire{ID: id, Error: object{"code": 403, "message": "the key may not do this"}})
		return
	case "refuse":
		stop = "refusal"
	case "exit":
		os.Exit(7)
	}
	if ctx.Err() != nil {
		stop = "cancelled"
	}
	a.send(wire{ID: id, Result: object{"stopReason": stop, "usage": object{"inputTokens": 100, "outputTokens": 42, "totalTokens": 142}}})
}
