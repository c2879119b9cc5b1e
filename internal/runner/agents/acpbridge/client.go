package acpbridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/acp/acpformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
	"github.com/overwinter-dev/overwinter/internal/session"
)

const (
	startTimeout   = 2 * time.Minute
	stopGrace      = 2 * time.Second        // to end gracefully
	cancelInterval = 500 * time.Millisecond // between two cancels
	giveUpGrace    = 10 * time.Second       // to act on a cancel
)

// Client is the side of the conversation that every bridge to an agent of this protocol has: the
// agent's process, its handshake, and what of a turn is to be known to break it off or to give it up.
// One goroutine has it, which reads Lines and Ready.
type Client struct {
	// Name is the bridge's, for what it says on Stderr.
	Name   string
	Stderr io.Writer

	Child *bridge.Child
	// Lines are what the agent says, taken one by one, so that what is printed is in order.
	Lines chan Said
	// Ready receives, once, the outcome of the start.
	Ready chan Started
	// Session is the agent's own id of it; empty until it is ready.
	Session string
	// Queued is a prompt that waits for that.
	Queued *stdio.Command
	// Turn is what is under way, or nil.
	Turn *Turn

	peer  *bridge.Peer
	tasks sync.WaitGroup
	done  chan struct{} // closed when the last listener is gone
}

// Said is a line of the agent.
type Said struct {
	Line []byte
	bridge.Message
}

// Started is the outcome of an agent's start.
type Started struct {
	Session string
	Version string // of the agent, where it says so
	Loaded  bool   // it has loaded the earlier conversation
	Lost    error  // why it could not
	Err     error
}

// Turn is a turn under way.
type Turn struct {
	Run         string
	Heard       time.Time // when the agent last did something
	Interrupted bool
	GaveUp      error                      // why the turn is no longer waited for
	Asked       map[string]json.RawMessage // ids of requests for permission, by call

	cancelled time.Time // when the last cancel was sent
	giveUpBy  time.Time
}

// Start starts the agent. shake is the handshake, which calls the agent while its lines are read.
func (c *Client) Start(spec bridge.Spec, shake func(context.Context, *bridge.Peer) Started) error {
	var err error
	if c.Child, err = bridge.Start(spec); err != nil {
		return err
	}
	c.peer = bridge.NewPeer(c.Child.Stdin)
	c.done, c.Lines, c.Ready = make(chan struct{}), make(chan Said), make(chan Started)
	c.tasks.Go(func() {
		err := c.peer.Read(c.Child.Stdout, func(line []byte, m bridge.Message) {
			select {
			case c.Lines <- Said{line, m}:
			case <-c.done:
			}
		})
		if err != nil {
			c.log(fmt.Errorf("read from the agent: %w", err))
		}
	})
	c.tasks.Go(func() {
		ctx, cancel := context.WithTimeoutCause(context.Background(), startTimeout, errors.New("the agent takes too long to start"))
		defer cancel()
		s := shake(ctx, c.peer)
		select {
		case c.Ready <- s:
		case <-c.done:
		}
	})
	return nil
}

// Commands are those of the runner.
func (c *Client) Commands(stdin io.Reader) <-chan stdio.Command {
	return bridge.Commands(c.done, stdin, c.Stderr)
}

// Stop ends the agent in order.
func (c *Client) Stop() {
	go func() { // its last lines are not used
		for {
			select {
			case <-c.Lines:
			case <-c.done:
				return
			}
		}
	}()
	c.Child.Stop(stopGrace)
	close(c.done)
	c.tasks.Wait()
}

func (c *Client) log(err error) { fmt.Fprintf(c.Stderr, "%s: %v\n", c.Name, err) }

// check logs a line that could not be written: the agent is about to be found dead.
func (c *Client) check(err error) {
	if err != nil {
		c.log(err)
	}
}

// Capabilities are what an agent says that it can.
type Capabilities struct {
	Version      string // of the agent
	Load, Resume bool   // sessions
}

// Initialize performs the handshake. The client offers neither files nor terminals.
func Initialize(ctx context.Context, peer *bridge.Peer) (Capabilities, error) {
	type object = map[string]any
	raw, err := peer.Call(ctx, acpformat.MethodInitialize, object{
		"protocolVersion":    acpformat.Version,
		"clientCapabilities": object{"fs": object{"readTextFile": false, "writeTextFile": false}, "terminal": false},
		"clientInfo":         object{"name": "overwinter", "version": "1"},
	})
	if err != nil {
		return Capabilities{}, err
	}
	var can struct {
		Version int `json:"protocolVersion"`
		Info    struct {
			Version string `json:"version"`
		} `json:"agentInfo"`
		Capabilities struct {
			Load    bool `json:"loadSession"`
			Session struct {
				Resume json.RawMessage `json:"resume"`
			} `json:"sessionCapabilities"`
		} `json:"agentCapabilities"`
	}
	if acpformat.Decode(raw, &can); can.Version != acpformat.Version {
		return Capabilities{}, fmt.Errorf("the agent speaks version %d of the protocol, not %d", can.Version, acpformat.Version)
	}
	return Capabilities{Version: can.Info.Version, Load: can.Capabilities.Load, Resume: hasValue(can.Capabilities.Session.Resume)}, nil
}

func hasValue(raw json.RawMessage) bool {
	s := string(raw)
	return s != "" && s != "null" && s != "false"
}

// Where is what a session needs to know of its surroundings; a new one needs nothing else.
type Where struct {
	SessionID string          `json:"sessionId,omitempty"` // of a session that is resumed
	Dir       string          `json:"cwd"`
	Servers   json.RawMessage `json:"mcpServers"` // a list
}

// NewSession begins a session and returns its id.
func NewSession(ctx context.Context, peer *bridge.Peer, where Where) (string, error) {
	raw, err := peer.Call(ctx, acpformat.MethodNew, where)
	if err != nil {
		return "", err
	}
	var made struct {
		SessionID string `json:"sessionId"`
	}
	if acpformat.Decode(raw, &made); made.SessionID == "" {
		return "", errors.New(acpformat.MethodNew + ": the agent names no session")
	}
	return made.SessionID, nil
}

// Recall has the agent resume the session of where, by the first method that it supports. If it
// supports none, Lost has its response; Err is set if the agent is gone.
func Recall(ctx context.Context, peer *bridge.Peer, where Where, methods ...string) Started {
	lost := errors.New("it cannot load sessions")
	for _, method := range methods {
		_, err := peer.Call(ctx, method, where)
		if err == nil {
			return Started{Session: where.SessionID, Loaded: true}
		}
		if errors.Is(err, bridge.ErrGone) || ctx.Err() != nil {
			return Started{Err: err}
		}
		lost = err
	}
	return Started{Lost: lost}
}

// Queue has a prompt wait. False: another one is at work or waits, so that it is left out.
func (c *Client) Queue(cmd stdio.Command) bool {
	if c.Turn != nil || c.Queued != nil {
		c.log(fmt.Errorf("the prompt of run %s comes while another is at work", cmd.RunID))
		return false
	}
	c.Queued = &cmd
	return true
}

// Begin begins the turn of the prompt that waits.
func (c *Client) Begin(run string) {
	c.Queued = nil
	c.Turn = &Turn{Run: run, Heard: time.Now(), Asked: map[string]json.RawMessage{}}
}

// text is a part of a prompt.
type text struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// Prompt gives the agent the texts of a prompt. What it answers is among its lines: see IsEnd.
func (c *Client) Prompt(texts ...string) {
	parts := make([]text, len(texts))
	for i, s := range texts {
		parts[i] = text{"text", s}
	}
	params := map[string]any{"sessionId": c.Session, "prompt": parts}
	c.tasks.Go(func() {
		_, _ = c.peer.Call(context.Background(), acpformat.MethodPrompt, params) // read where all lines are
	})
}

// IsEnd reports whether a line answers a prompt.
func (s Said) IsEnd() bool {
	const start = `"` + acpformat.MethodPrompt + "#"
	return s.IsResponse() && len(s.ID) > len(start) && string(s.ID[:len(start)]) == start
}

// Cancel asks the agent to abort the turn. A cancel that arrives before the agent has accepted the
// prompt may be lost, so it must be repeated: see Look.
func (c *Client) Cancel() {
	c.Turn.cancelled = time.Now()
	c.check(c.peer.Notify(acpformat.MethodCancel, map[string]string{"sessionId": c.Session}))
}

// Reply answers a request for permission; no option withdraws the question.
func (c *Client) Reply(call, option string) {
	id := c.Turn.Asked[call]
	delete(c.Turn.Asked, call)
	c.check(c.peer.Reply(id, outcome(option)))
}

// Permit answers a request for permission as where everything is allowed, which is by the option that
// lets a call run once.
func (c *Client) Permit(id, options json.RawMessage) {
	c.check(c.peer.Reply(id, outcome(allow(options))))
}

// Withdraw answers a request for permission that no person can be asked.
func (c *Client) Withdraw(id json.RawMessage) { c.check(c.peer.Reply(id, outcome(""))) }

// Refuse answers a request that the client has not said that it takes; other lines are left alone.
func (c *Client) Refuse(m bridge.Message) {
	if m.IsRequest() {
		c.check(c.peer.Refuse(m.ID, bridge.CodeMethodNotFound, "there is no method "+m.Method))
	}
}

// GiveUp records why the turn is no longer waited for. The agent must still be cancelled.
func (c *Client) GiveUp(why error) {
	c.Turn.GaveUp, c.Turn.giveUpBy = why, time.Now().Add(giveUpGrace)
}

// Look checks the deadlines: whether to cancel the turn again, and whether the agent has failed for
// too long to act on a cancel.
func (t *Turn) Look() (again, over bool) {
	again = (t.Interrupted || t.GaveUp != nil) && time.Since(t.cancelled) > cancelInterval
	return again, t.GaveUp != nil && time.Now().After(t.giveUpBy)
}

// Ended returns how the turn has ended, from the response to its prompt, unless it was aborted or
// given up. Failed: it had no result, for the reason.
func (t *Turn) Ended(m bridge.Message) (o session.Outcome, reason string, failed bool) {
	switch {
	case t.GaveUp != nil:
		return session.OutcomeFailed, t.GaveUp.Error(), true
	case t.Interrupted:
		return session.OutcomeCancelled, session.ReasonAborted, false
	case m.Error != nil:
		return session.OutcomeFailed, m.Error.Message, true
	}
	var result struct {
		StopReason string `json:"stopReason"`
	}
	acpformat.Decode(m.Result, &result)
	o, reason = acpformat.Stopped(result.StopReason)
	return o, reason, false
}
