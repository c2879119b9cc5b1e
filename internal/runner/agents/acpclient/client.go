package acpclient

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
)

const (
	startTimeout   = 2 * time.Minute
	stopGrace      = 2 * time.Second        // for the agent to exit gracefully
	cancelInterval = 500 * time.Millisecond // between two cancels
	cancelGrace    = 10 * time.Second       // for the agent to act on a cancel
)

// Bridge is a bridge to an agent that speaks the protocol: the agent's process, the session, and
// the turn in progress.
type Bridge struct {
	// Name is the bridge's command, for messages on Stderr. Noun is the word for the agent in
	// messages, such as "agent".
	Name, Noun string
	Stderr     io.Writer
	Out        *bridge.Output
	// Allow grants every permission that the agent requests.
	Allow bool
	// Silent is the reason for the failure of a turn that timed out, such as "the agent says
	// nothing".
	Silent string
	// Interval is the time between two checks of the deadlines.
	Interval time.Duration
	// Notebook is set by Run.
	Notebook *Notebook
	// Session is the agent's own ID of the session; empty until the agent is ready.
	Session string
	// Turn is the turn in progress, or nil.
	Turn *Turn

	agent   Agent
	child   *bridge.Child
	peer    *bridge.Peer
	lines   chan Said      // one at a time from the reader of stdout, so that output stays in order
	images  bool           // the agent accepts images
	started chan Started   // receives the outcome of the start, once
	queued  *stdio.Command // a prompt that waits until the agent is ready
	tasks   sync.WaitGroup
	done    chan struct{} // closed when lines and started have no receiver any more
}

// Said is a line of the agent.
type Said struct {
	Line []byte
	bridge.Message
}

// Started is the outcome of an agent's start.
type Started struct {
	Session string
	Version string // of the agent, if reported
	Loaded  bool   // it has loaded the earlier conversation
	Images  bool   // the agent accepts images
	Lost    error  // why it could not be loaded
	Err     error
}

// Start starts the agent. handshake may call the agent; its lines are read meanwhile.
func (b *Bridge) Start(spec bridge.Spec, handshake func(context.Context, *bridge.Peer) Started) error {
	var err error
	if b.child, err = bridge.Start(spec); err != nil {
		return err
	}
	b.peer = bridge.NewPeer(b.child.Stdin)
	b.done, b.lines, b.started = make(chan struct{}), make(chan Said), make(chan Started)
	b.tasks.Go(func() {
		err := b.peer.Read(b.child.Stdout, func(line []byte, m bridge.Message) {
			select {
			case b.lines <- Said{line, m}:
			case <-b.done:
			}
		})
		if err != nil {
			b.log(fmt.Errorf("read from the agent: %w", err))
		}
	})
	b.tasks.Go(func() {
		ctx, cancel := context.WithTimeoutCause(context.Background(), startTimeout, errors.New("the agent takes too long to start"))
		defer cancel()
		s := handshake(ctx, b.peer)
		select {
		case b.started <- s:
		case <-b.done:
		}
	})
	return nil
}

// stop ends the agent gracefully and waits for all goroutines.
func (b *Bridge) stop() {
	go func() { // discard its last lines
		for {
			select {
			case <-b.lines:
			case <-b.done:
				return
			}
		}
	}()
	b.child.Stop(stopGrace)
	close(b.done)
	b.tasks.Wait()
}

func (b *Bridge) log(err error) { fmt.Fprintf(b.Stderr, "%s: %v\n", b.Name, err) }

// check logs a failed write. The agent has probably died, which is detected elsewhere.
func (b *Bridge) check(err error) {
	if err != nil {
		b.log(err)
	}
}

// part is one part of a prompt.
type part struct {
	Type     string `json:"type"`
	Text     string `json:"text,omitempty"`
	MimeType string `json:"mimeType,omitempty"` // of an image
	Data     string `json:"data,omitempty"`
}

// send sends the texts and images of a prompt to the agent. The response is read like any other
// line: see isEnd.
func (b *Bridge) send(texts []string, images []bridge.Image) {
	var parts []part
	for _, s := range texts {
		parts = append(parts, part{Type: "text", Text: s})
	}
	for _, i := range images {
		parts = append(parts, part{Type: "image", MimeType: i.MediaType, Data: i.Data})
	}
	params := map[string]any{"sessionId": b.Session, "prompt": parts}
	b.tasks.Go(func() {
		_, _ = b.peer.Call(context.Background(), acpformat.MethodPrompt, params) // the response is among the agent's lines
	})
}

// isEnd reports whether a line is the response to a prompt.
func (s Said) isEnd() bool {
	const start = `"` + acpformat.MethodPrompt + "#"
	return s.IsResponse() && len(s.ID) > len(start) && string(s.ID[:len(start)]) == start
}

// cancel asks the agent to abort the turn, and withdraws its questions. The agent may lose a cancel
// that arrives before it has accepted the prompt, so it is repeated until the turn ends.
func (b *Bridge) cancel() {
	for call := range b.Turn.Asked {
		b.reply(call, "", Withdrawn)
	}
	b.Turn.cancelled = time.Now()
	b.check(b.peer.Notify(acpformat.MethodCancel, map[string]string{"sessionId": b.Session}))
}

// reply answers a permission request. Without an option it withdraws the question.
func (b *Bridge) reply(call, option string, d Decision) {
	b.Turn.LastLine = time.Now()
	b.agent.Answered(call, d)
	id := b.Turn.Asked[call]
	delete(b.Turn.Asked, call)
	b.check(b.peer.Reply(id, outcome(option)))
}

// Refuse rejects a request that the client does not serve. It ignores lines that need no response.
func (b *Bridge) Refuse(m bridge.Message) {
	if m.IsRequest() {
		b.check(b.peer.Refuse(m.ID, bridge.CodeMethodNotFound, "there is no method "+m.Method))
	}
}

// permit grants a permission request without asking, with the option that allows the call once.
func (b *Bridge) permit(id, options json.RawMessage) {
	b.check(b.peer.Reply(id, outcome(allow(options))))
}

// withdraw withdraws a permission request that cannot be shown to a person.
func (b *Bridge) withdraw(id json.RawMessage) { b.check(b.peer.Reply(id, outcome(""))) }
