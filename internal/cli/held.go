package cli

import (
	"fmt"
	"io"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// heldNote reports, once for each hold, that a prompt waits because the queue of its session is
// held.
type heldNote struct {
	notes     io.Writer
	sessionID string
	noted     bool
}

// take reads an event. waits reports whether the prompt has not started.
func (h *heldNote) take(e client.Event, waits bool) error {
	if e.Type != client.EventQueue {
		return nil
	}
	queue, err := decode[client.QueueData](e)
	if err != nil {
		return err
	}
	if !queue.Held || h.noted || !waits {
		h.noted = h.noted && queue.Held
		return nil
	}
	h.noted = true
	why := ""
	if queue.HeldReason != "" {
		why = " (" + terminal.OneLine(queue.HeldReason, maxReason) + ")"
	}
	_, err = fmt.Fprintf(h.notes, "the queue is held%s: the prompt waits for its release\nto release it: overwinter session release %s\n", why, h.sessionID)
	return err
}
