package client

import (
	"context"
	"fmt"
)

// PromptWait returns a prompt when it has ended, with any outcome. It also waits while the session
// is in error or its queue is held; use ctx to limit the wait.
func (c *Client) PromptWait(ctx context.Context, sessionID, promptID string) (Prompt, error) {
	after, err := c.Position(ctx, sessionID) // read before the prompt, so that the end of the prompt is not missed
	if err != nil {
		return Prompt{}, err
	}
	p, err := c.PromptGet(ctx, sessionID, promptID)
	if err != nil || p.ended() {
		return p, err
	}
	for e, err := range c.Follow(ctx, sessionID, after) {
		if err != nil {
			return p, fmt.Errorf("wait for prompt %s: %w", promptID, err)
		}
		switch e.Type {
		case EventPrompt:
			var data PromptData
			if err := e.Decode(&data); err != nil {
				return p, err
			}
			if data.Prompt.ID != promptID || !data.Prompt.ended() {
				continue
			}
		case MarkerGap, MarkerEnd:
		default:
			continue
		}
		if p, err = c.PromptGet(ctx, sessionID, promptID); err != nil || p.ended() {
			return p, err
		}
	}
	return p, fmt.Errorf("wait for prompt %s: the session has ended and the prompt is %s", promptID, p.Status)
}

// ended reports whether the prompt has ended and will not run again by itself.
func (p Prompt) ended() bool {
	return p.Status.Final() && (p.Status != PromptUnknown || p.OnUnknown != OnUnknownRetry)
}
