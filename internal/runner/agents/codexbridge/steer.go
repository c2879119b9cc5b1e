package codexbridge

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/overwinter-dev/overwinter/internal/agent/codex/codexformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
)

// steer adds a prompt to the running turn of the main thread. If the agent accepts it, it reports
// it as a message; otherwise a note reports that it was declined. A second line for the same prompt
// is ignored.
func (p *program) steer(ctx context.Context, c stdio.Command) {
	id := codexformat.ClientID(c.RunID, c.PromptID, c.Author)
	p.mu.Lock()
	_, given := p.steered[id]
	d := p.delivered[c.RunID]
	thread, turn := p.thread, ""
	if d != nil && d.live && d.verdict == nil {
		turn = d.turn
	}
	p.steered[id] = true
	p.mu.Unlock()
	if given {
		return
	}
	if turn == "" {
		p.decline(id)
		return
	}
	_, err := p.peer.Call(ctx, "turn/steer", map[string]any{
		"threadId": thread, "expectedTurnId": turn, "clientUserMessageId": id,
		"input": []any{map[string]any{"type": "text", "text": p.expand(c.Content)}},
	})
	if _, refused := errors.AsType[*bridge.RPCError](err); err != nil && !refused {
		p.child.Signal(syscall.SIGKILL) // it may have the prompt nevertheless; its exit is reported elsewhere
		return
	}
	if err != nil {
		fmt.Fprintf(p.stderr, "codex bridge: a prompt for the running turn is declined: %v\n", err)
		p.decline(id)
	}
}

// decline reports that the agent has not accepted a prompt, unless its fate is already known.
func (p *program) decline(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.steered[id] {
		return
	}
	p.steered[id] = false
	run, prompt, _ := codexformat.ParseClientID(id)
	p.out.Note(stdio.Note{Type: stdio.NoteDeclined, RunID: run, ID: prompt})
}

// left returns the prompts that the agent has received for its turn and not accepted.
func (p *program) left() (ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, waits := range p.steered {
		if waits {
			ids = append(ids, id)
		}
	}
	return ids
}
