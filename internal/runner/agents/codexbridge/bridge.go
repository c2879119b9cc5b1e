package codexbridge

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/codex/codexformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/agenttool"
	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const (
	// startTimeout bounds the handshake with the agent, and restoring a thread.
	startTimeout = 60 * time.Second
	// callTimeout bounds every other request. The agent responds to these at once.
	callTimeout = 20 * time.Second
	// receiptTimeout bounds how long an abort waits for the agent to acknowledge the prompt.
	receiptTimeout = 5 * time.Second
	// stopGrace is how long the agent may take to exit gracefully, and again to act on SIGTERM.
	stopGrace = 3 * time.Second
	// defaultTimeout is how long requests to the model may fail before the turn fails.
	defaultTimeout = 5 * time.Minute
	// defaultRetries is how often the agent retries a request whose stream was interrupted.
	defaultRetries = 10
)

// options are the flags of the bridge.
type options struct {
	program, session, model string
	ask, resume             bool
	deny                    []string
	tools                   []string // command line of the server of overwinter's tools
	timeout                 time.Duration
	retries                 int
}

// Main runs the bridge between the runner's lines and codex app-server: it serves prompts from
// stdin until stdin is closed and returns the exit code. args are the flags after the subcommand.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet(codexformat.Command, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.program, "program", codexformat.Binary, "the agent's program")
	flags.StringVar(&o.session, "session", "", "id of the session, which names the notebook")
	flags.StringVar(&o.model, "model", "", "model to use; empty is the agent's own choice")
	flags.BoolVar(&o.ask, "ask", false, "ask before everything that is not known to be harmless")
	flags.BoolVar(&o.resume, "resume", false, "resume an existing thread")
	timeout := bridge.ModelTimeout(flags, defaultTimeout)
	flags.IntVar(&o.retries, "retries", defaultRetries, "how often a request is sent again whose stream has broken")
	flags.Func("deny", "a tool that is taken away, where the agent can do without it", func(tool string) error {
		o.deny = append(o.deny, tool)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return bridge.ExitUsage
	}
	o.timeout, o.tools = *timeout, stdio.DecodeTools(os.Getenv(stdio.EnvTools))
	home := os.Getenv("CODEX_HOME")
	workspace, err := os.Getwd()
	if err != nil || !stdio.SessionID.MatchString(o.session) || flags.NArg() > 0 || home == "" {
		fmt.Fprintln(stderr, "codex bridge: --session, $CODEX_HOME, a working directory and nothing else are needed")
		return bridge.ExitUsage
	}
	p := program{
		options: o, home: home, workspace: workspace, out: bridge.NewOutput(stdout), stderr: stderr,
		delivered: map[string]*delivery{}, rollouts: map[string]string{}, asked: map[string]pending{}, steered: map[string]bool{}, limit: make(chan struct{}, 1),
	}
	return p.main(stdin)
}

// program is the bridge's process.
type program struct {
	options
	home, workspace string
	out             *bridge.Output
	stderr          io.Writer
	notebook        *notebook
	child           *bridge.Child
	peer            *bridge.Peer
	limit           chan struct{} // receives a token when requests to the model have failed for too long

	mu        sync.Mutex
	run       string // the newest
	thread    string // the main one
	started   string // the model of the thread
	delivered map[string]*delivery
	turns     []codexformat.Turn // in progress, of all threads
	rollouts  map[string]string  // file of each thread
	writing   []*written         // messages in progress
	asked     map[string]pending // by questionID
	steered   map[string]bool    // prompts for running turns, by clientID; true until the agent has accepted or declined them
	failing   *time.Timer        // runs while requests to the model fail
	permanent string             // the reason why requests to the model fail permanently
	refused   codexformat.Failure
}

// delivery is a prompt that was delivered to the agent.
type delivery struct {
	turn     string
	verdict  *codexformat.KnownData // nil while it is in progress
	live     bool                   // delivered by this process
	received bool                   // the agent has acknowledged the prompt
}

// written is the text so far of a message or of reasoning.
type written struct {
	codexformat.Turn
	item string
	part int
	text strings.Builder
}

// pending is a request of the agent that waits for an answer.
type pending struct {
	id     json.RawMessage
	method string
	turn   codexformat.Turn
	item   string
}

func (p *program) main(stdin io.Reader) int {
	file, have, err := bridge.OpenNotebook(codexformat.NotebookPath(p.home, p.session))
	if err != nil {
		fmt.Fprintf(p.stderr, "codex bridge: %v\n", err)
		return bridge.ExitFailed
	}
	p.notebook = &notebook{file: file}
	defer p.closeNotebook()
	p.recall(have)
	if err := p.start(); err != nil {
		fmt.Fprintf(p.stderr, "codex bridge: %v\n", err)
		return bridge.ExitFailed
	}
	code := p.serve(stdin)
	p.child.Stop(stopGrace)
	p.succeeds()
	return code
}

func (p *program) closeNotebook() {
	if err := p.notebook.close(); err != nil {
		fmt.Fprintf(p.stderr, "codex bridge: close the notebook: %v\n", err)
	}
}

// start starts the agent and performs the handshake.
func (p *program) start() error {
	child, err := bridge.Start(bridge.Spec{Argv: slices.Concat([]string{p.program}, p.toolFlags(), appServer), Stderr: p.stderr})
	if err != nil {
		return err
	}
	p.child, p.peer = child, bridge.NewPeer(child.Stdin)
	p.peer.Bare = true
	return nil
}

// toolFlags returns the flags that add the server of overwinter's tools to the servers of the
// profile. Its tools need no approval.
func (p *program) toolFlags() []string {
	if len(p.tools) == 0 {
		return nil
	}
	words := make([]string, len(p.tools))
	for i, word := range p.tools {
		quoted, err := json.Marshal(word) // a JSON string is also a valid TOML string
		if err != nil {
			panic(err) // a string can always be encoded
		}
		words[i] = string(quoted)
	}
	server := "{command=" + words[0] + ",args=[" + strings.Join(words[1:], ",") + `],default_tools_approval_mode="approve"}`
	return []string{"-c", "mcp_servers." + agenttool.Server + "=" + server}
}

// appServer makes the agent speak JSON-RPC over its stdio. It disables snapshots of the shell,
// which would write the environment, and with it the key, to the disk.
var appServer = []string{"-c", "features.shell_snapshot=false", "app-server"}

// serve serves prompts until stdin is closed or the agent exits.
func (p *program) serve(stdin io.Reader) int {
	gone, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		if err := p.peer.Read(p.child.Stdout, p.handleLine); err != nil {
			fmt.Fprintf(p.stderr, "codex bridge: read from the agent: %v\n", err)
		}
	}()
	defer close(done)
	ctx, cancel := context.WithTimeoutCause(context.Background(), startTimeout, errors.New("the agent does not answer"))
	err := p.open(ctx)
	cancel()
	switch {
	case errors.Is(err, bridge.ErrGone):
		p.child.Signal(syscall.SIGKILL) // if it is still running, its output is no longer read
	case err != nil:
		fmt.Fprintf(p.stderr, "codex bridge: %v\n", err)
		p.child.Stop(stopGrace)
		<-gone
		return bridge.ExitFailed
	}
	commands := bridge.Commands(done, stdin, p.stderr)
	for {
		select {
		case c, ok := <-commands:
			if !ok {
				p.child.Stop(stopGrace)
				<-gone
				return bridge.ExitDone
			}
			p.command(c)
		case <-p.limit:
			p.abortFailing()
		case <-gone:
			how := p.child.Ended()
			p.out.Note(stdio.Note{Type: stdio.NoteDied, Message: how})
			fmt.Fprintf(p.stderr, "codex bridge: the agent has ended: %s\n", how)
			return bridge.ExitDied
		}
	}
}

// open initializes the connection and resumes the session's thread, or starts one.
func (p *program) open(ctx context.Context) error {
	if _, err := p.peer.Call(ctx, "initialize", map[string]any{
		"clientInfo":   map[string]any{"name": "overwinter", "title": "overwinter", "version": codexformat.Version},
		"capabilities": map[string]any{"experimentalApi": true},
	}); err != nil {
		return err
	}
	if err := p.peer.Notify("initialized", nil); err != nil {
		return err
	}
	params := p.settings()
	if p.thread != "" {
		params["threadId"], params["excludeTurns"] = p.thread, true
		result, err := p.peer.Call(ctx, "thread/resume", params)
		if err == nil {
			return p.opened(result)
		}
		var refused *bridge.RPCError
		if !errors.As(err, &refused) {
			return err
		}
		fmt.Fprintf(p.stderr, "codex bridge: the thread %s is lost, a new one begins: %v\n", p.thread, err)
		delete(params, "threadId")
		delete(params, "excludeTurns")
		clear(p.delivered)
	}
	result, err := p.peer.Call(ctx, "thread/start", params)
	if err != nil {
		return err
	}
	return p.opened(result)
}

func (p *program) opened(result json.RawMessage) error {
	var r struct {
		Model  string `json:"model"`
		Thread struct {
			ID   string `json:"id"`
			Path string `json:"path"`
		} `json:"thread"`
	}
	if err := json.Unmarshal(result, &r); err != nil || r.Thread.ID == "" {
		return fmt.Errorf("the agent names no thread: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.thread, p.started = r.Thread.ID, r.Model
	p.rollouts[r.Thread.ID] = r.Thread.Path
	return nil
}

// settings returns the settings of the session's thread.
func (p *program) settings() map[string]any {
	// The agent identifies OpenAI's own server by this name. That server has its own way to compact
	// conversations; other servers are asked for a summary.
	url, name := os.Getenv(codexformat.SecretBaseURL), "overwinter"
	if url == "" {
		url, name = "https://api.openai.com/v1", "OpenAI"
	}
	config := map[string]any{
		"model_provider": codexformat.Provider,
		"model_providers": map[string]any{codexformat.Provider: map[string]any{
			"name": name, "base_url": url, "env_key": codexformat.SecretKey, "wire_api": "responses", "supports_websockets": false,
			"stream_max_retries": p.retries,
		}},
		// A snapshot of the shell would write the environment, and with it the key, to the disk.
		"features":                           map[string]any{"default_mode_request_user_input": true},
		"shell_environment_policy":           map[string]any{"exclude": []string{codexformat.SecretKey, codexformat.SecretBaseURL}},
		"suppress_unstable_features_warning": true,
		"check_for_update_on_startup":        false,
		"analytics":                          map[string]any{"enabled": false},
		"feedback":                           map[string]any{"enabled": false},
		"otel":                               map[string]any{"exporter": "none", "metrics_exporter": "none"},
	}
	features := config["features"].(map[string]any)
	if slices.Contains(p.deny, "exec_command") {
		features["shell_tool"], features["unified_exec"] = false, false
	}
	if slices.Contains(p.deny, "web_search") {
		config["web_search"] = "disabled"
	}
	params := map[string]any{
		"cwd": p.workspace, "approvalPolicy": "never", "sandbox": "danger-full-access", "config": config,
	}
	if p.ask {
		params["approvalPolicy"] = "untrusted"
	}
	if p.model != "" {
		params["model"] = p.model
	}
	return params
}

// command executes a command of the runner.
func (p *program) command(c stdio.Command) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), callTimeout, errors.New("the agent does not answer"))
	defer cancel()
	switch c.Type {
	case stdio.Prompt:
		p.prompt(ctx, c)
	case stdio.Answer:
		p.answer(ctx, c)
	case stdio.Interrupt:
		p.interrupt(ctx, c.RunID)
	case stdio.Steer:
		p.steer(ctx, c)
	}
}

// prompt starts a turn, unless the prompt was delivered before. Then a completed turn is reported
// again, and an interrupted one is continued.
func (p *program) prompt(ctx context.Context, c stdio.Command) {
	p.mu.Lock()
	d := p.delivered[c.RunID]
	thread := p.thread
	note := stdio.Note{Type: stdio.NoteRun, RunID: c.RunID, ID: thread, Data: data(codexformat.RunData{Model: p.started})}
	p.mu.Unlock()
	if thread == "" {
		return // the agent has exited, which is reported elsewhere
	}
	if d != nil && d.verdict == nil && d.live {
		return // the turn is in progress
	}
	if d != nil && d.verdict != nil {
		p.out.Note(stdio.Note{Type: stdio.NoteKnown, RunID: c.RunID, Data: data(d.verdict)})
		return
	}
	input := []any{}
	if d == nil {
		input = append(input, map[string]any{"type": "text", "text": p.expand(c.Content)})
		if c.Reminder != "" {
			input = append(input, map[string]any{"type": "text", "text": c.Reminder})
		}
		for _, i := range c.Images {
			input = append(input, map[string]any{"type": "localImage", "path": i.Path})
		}
	}
	p.mu.Lock()
	p.run, p.delivered[c.RunID] = c.RunID, &delivery{live: true, received: len(input) == 0}
	p.mu.Unlock()
	p.note(note)
	p.out.Note(note)
	params := map[string]any{"threadId": thread, "input": input, "clientUserMessageId": codexformat.ClientID(c.RunID, c.PromptID, c.Author)}
	result, err := p.peer.Call(ctx, "turn/start", params)
	if _, refused := errors.AsType[*bridge.RPCError](err); err != nil && !refused {
		// The turn may have begun nevertheless. A living agent must not continue a turn that is
		// reported as failed; its exit is reported elsewhere.
		p.child.Signal(syscall.SIGKILL)
		return
	}
	var r struct {
		Turn struct {
			ID string `json:"id"`
		} `json:"turn"`
	}
	if err == nil {
		err = json.Unmarshal(result, &r)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.delivered[c.RunID].verdict = &codexformat.KnownData{Outcome: session.OutcomeFailed, Reason: err.Error()}
		p.out.Note(stdio.Note{Type: stdio.NoteFailed, RunID: c.RunID, Message: err.Error()})
		return
	}
	p.delivered[c.RunID].turn = r.Turn.ID
}

// expand expands a command of the profile: a prompt of the form /name and its arguments.
func (p *program) expand(content string) string {
	name, rest, _ := strings.Cut(content, " ")
	name, ok := strings.CutPrefix(name, "/")
	if !ok || name == "" || strings.ContainsAny(name, "/.\n") {
		return content
	}
	text, err := os.ReadFile(filepath.Join(p.home, codexformat.PromptDir, name+".md"))
	if err != nil {
		return content
	}
	prompt := string(text)
	if strings.Contains(prompt, codexformat.Arguments) {
		return strings.ReplaceAll(prompt, codexformat.Arguments, rest)
	}
	if rest = strings.TrimSpace(rest); rest != "" {
		prompt += "\n\n" + rest
	}
	return prompt
}

// answer forwards an answer to a question. It ignores a second answer.
func (p *program) answer(ctx context.Context, c stdio.Command) {
	p.mu.Lock()
	q, ok := p.asked[c.ID]
	delete(p.asked, c.ID)
	p.mu.Unlock()
	if !ok {
		return
	}
	if q.method == codexformat.AskUser {
		n := stdio.Note{Type: codexformat.NoteAnswered, ID: q.item, Data: data(codexformat.AskData{
			Thread: q.turn.Thread, Turn: q.turn.ID, At: now(), Result: c.Data,
		})}
		p.note(n)
		p.out.Note(n)
	}
	if err := p.peer.Reply(q.id, c.Data); err != nil {
		fmt.Fprintf(p.stderr, "codex bridge: answer: %v\n", err)
		return
	}
	if c.Content == "" || q.method == codexformat.AskUser {
		return
	}
	if _, err := p.peer.Call(ctx, "turn/steer", map[string]any{
		"threadId": q.turn.Thread, "expectedTurnId": q.turn.ID, "input": []any{map[string]any{"type": "text", "text": c.Content}},
	}); err != nil {
		fmt.Fprintf(p.stderr, "codex bridge: send the reason to the agent: %v\n", err)
	}
}

// interrupt aborts everything in progress for a run, subagents first, including background
// commands. Without a run it aborts everything in progress.
func (p *program) interrupt(ctx context.Context, run string) {
	p.awaitPrompt(ctx, run)
	turns := p.activeTurns(run)
	if p.anyOfSubagents(turns) { // the main turn may have ended, or end by itself meanwhile
		p.out.Note(stdio.Note{Type: codexformat.NoteAborted, RunID: run})
	}
	for _, t := range slices.Backward(turns) {
		for {
			_, err := p.peer.Call(ctx, "turn/interrupt", map[string]any{"threadId": t.Thread, "turnId": t.ID})
			if err == nil {
				break
			}
			fmt.Fprintf(p.stderr, "codex bridge: interrupt: %v\n", err)
			if !p.again(ctx, run, t) {
				break
			}
		}
	}
	for _, t := range slices.Backward(turns) {
		if _, err := p.peer.Call(ctx, "thread/backgroundTerminals/clean", map[string]any{"threadId": t.Thread}); err != nil {
			fmt.Fprintf(p.stderr, "codex bridge: end the background processes: %v\n", err)
		}
	}
}

// awaitPrompt waits, up to a limit, until the agent has acknowledged the prompt of a run. If a turn
// is aborted before the acknowledgement, the prompt is only in the agent's own file.
func (p *program) awaitPrompt(ctx context.Context, run string) {
	ctx, cancel := context.WithTimeout(ctx, receiptTimeout)
	defer cancel()
	poll := time.NewTicker(flushPoll)
	defer poll.Stop()
	for !p.received(run) {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		}
	}
}

// received reports whether a run can be aborted without further waiting.
func (p *program) received(run string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.delivered[run]
	return d == nil || d.received || d.verdict != nil
}

// activeTurns returns the turns in progress for a run. It includes the turn of the run itself as soon
// as the agent has accepted its prompt, shortly before the turn begins.
func (p *program) activeTurns(run string) []codexformat.Turn {
	p.mu.Lock()
	defer p.mu.Unlock()
	turns := slices.Clone(p.turns)
	if run == "" {
		return turns
	}
	d := p.delivered[run]
	switch {
	case d == nil, d.verdict != nil && run != p.run:
		return nil
	case d.verdict != nil:
		return turns // of subagents: the main turn has ended
	}
	if main := (codexformat.Turn{Thread: p.thread, ID: d.turn}); d.turn != "" && !slices.Contains(turns, main) {
		turns = slices.Insert(turns, 0, main)
	}
	return turns
}

// anyOfSubagents reports whether one of the turns is a subagent's.
func (p *program) anyOfSubagents(turns []codexformat.Turn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(turns, func(t codexformat.Turn) bool { return t.Thread != p.thread })
}

// again waits before the next attempt to abort a turn. It returns false if the turn has ended or no
// time is left. A turn can be aborted only once it has actually begun.
func (p *program) again(ctx context.Context, run string, t codexformat.Turn) bool {
	const pause = 50 * time.Millisecond
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return slices.Contains(p.activeTurns(run), t)
	}
}

// abortFailing aborts a turn whose requests to the model all fail.
func (p *program) abortFailing() {
	p.mu.Lock()
	run, at := "", codexformat.Turn{}
	for id, d := range p.delivered {
		if d.live && d.verdict == nil {
			run, at = id, codexformat.Turn{Thread: p.thread, ID: d.turn}
		}
	}
	refused := p.refused
	message := codexformat.First(p.permanent, "The model API has failed for "+p.timeout.String()+".")
	p.mu.Unlock()
	if run == "" {
		return
	}
	n := stdio.Note{
		Type: stdio.NoteDeadline, RunID: run, Message: message,
		Data: data(codexformat.AskData{Thread: at.Thread, Turn: at.ID, At: now(), Failure: refused}),
	}
	p.note(n)
	p.out.Note(n)
	ctx, cancel := context.WithTimeoutCause(context.Background(), callTimeout, errors.New("the agent does not answer"))
	defer cancel()
	p.interrupt(ctx, run)
}

// note writes a note to the notebook. If that fails, the transcript lacks a line and the turn
// continues.
func (p *program) note(n stdio.Note) {
	if err := p.notebook.note(n); err != nil {
		fmt.Fprintf(p.stderr, "codex bridge: write the notebook: %v\n", err)
	}
}

func (p *program) keep(line []byte) {
	if err := p.notebook.line(line); err != nil {
		fmt.Fprintf(p.stderr, "codex bridge: write the notebook: %v\n", err)
	}
}

func now() int64 { return time.Now().UnixMilli() }
