package turn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agentmessage"
	"github.com/overwinter-dev/overwinter/internal/agenttool"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// A call of one of overwinter's tools is a frame of the run. The effect of the call is committed
// with the frame, and the answer is kept in the state of the turn. The effect therefore happens
// once, and a worker that takes over can resend the answer.

// answeredCall is a call with its answer.
type answeredCall struct {
	Frame  int64            `json:"f"`
	Answer agenttool.Answer `json:"a"`
}

// maxAnswers bounds the answers that are kept. It is also the limit of waiting calls.
const maxAnswers = runner.MaxCalls

// The reasons for not executing a call.
const (
	tooManyCalls    = "This turn has called overwinter's tools %d times, which is the limit."
	tooManyEvents   = "This turn has reached its limit of events. Its further output is not recorded."
	imageNotKept    = "The image is not stored: the turn has reached its limit of images, or the image contains the value of a secret."
	callNotAnswered = "The worker of this turn was replaced, and the outcome of the call is unknown."
)

// messageStore takes the messages that agents send.
type messageStore interface {
	// PromptByAgent stores a prompt that an agent sends. It is idempotent.
	PromptByAgent(ctx context.Context, m agentmessage.Message) (session.Prompt, error)
}

// send stores the message of a call before its frame is committed. If the attempt is lost in
// between, the next one finds the prompt. A refusal becomes the answer to the call.
func (a *attempt) send(ctx context.Context, frame int64, effect agenttool.Effect) (agenttool.Effect, error) {
	if effect.Message == nil {
		return effect, nil
	}
	p, err := a.Store.PromptByAgent(ctx, agentmessage.Message{
		ID:   session.DerivedID(session.PromptPrefix, a.in.RunID, strconv.FormatInt(frame, 10)),
		From: a.in.SessionID, To: effect.Message.To, Content: effect.Message.Content, Depth: a.start.Prompt.Depth, RequestID: a.start.Prompt.RequestID,
	})
	switch failure.CodeOf(err) {
	case "":
		a.progress.Made()
		if p.Notify && a.Prompted != nil {
			a.Prompted(ctx, p)
		}
		return effect, nil
	case failure.Forbidden, failure.NoSession, failure.Terminated, failure.InError, failure.QueueFull, failure.LimitReached, failure.PromptExists:
		return agenttool.Effect{Answer: agenttool.Refuse("The message was not sent: %v.", err)}, nil
	}
	return agenttool.Effect{}, Stored(err)
}

// report returns the events of a call's effect, and keeps its answer.
func (c *convert) report(f agent.Frame, effect agenttool.Effect) (translation, error) {
	images := c.kept(effect.Images)
	if len(images) < len(effect.Images) {
		effect = agenttool.Effect{Answer: agenttool.Refuse(imageNotKept)}
	}
	var events []conversation.Event
	for _, e := range effect.Events {
		events = append(events, conversation.Event{Type: e.Type, At: f.At.UTC(), Data: e.Data})
	}
	drafts, err := c.drafts(events, f.No)
	if err != nil {
		return translation{}, err
	}
	c.calls = append(c.calls, answeredCall{Frame: f.No, Answer: effect.Answer})
	c.calls = c.calls[max(0, len(c.calls)-maxAnswers):]
	return translation{events: drafts, images: images}, nil
}

// effectOf determines the effect of a call.
func (c *convert) effectOf(data []byte) agenttool.Effect {
	c.called++
	switch {
	case c.called > agenttool.MaxPerTurn:
		return agenttool.Effect{Answer: agenttool.Refuse(tooManyCalls, agenttool.MaxPerTurn)}
	case c.limits.Full || c.limits.Room().None():
		return agenttool.Effect{Answer: agenttool.Refuse(tooManyEvents)}
	}
	var call agenttool.Call
	if err := json.Unmarshal(data, &call); err != nil {
		return agenttool.Effect{Answer: agenttool.Refuse("The call is not valid.")}
	}
	call.Input = c.masking.masker.JSON(call.Input)
	return agenttool.Execute(call)
}

// answerCalls sends the answers to the calls whose frames are committed.
func (a *attempt) answerCalls(link *turnLink) error {
	if a.answeredTo >= a.frame {
		return nil
	}
	for _, c := range a.calls {
		if c.Frame > a.answeredTo && c.Frame <= a.frame {
			if err := link.answer(c); err != nil {
				return err
			}
		}
	}
	a.answeredTo = a.frame
	return nil
}

// answerAgain answers calls that are still waiting although their frames are committed, because the
// previous attempt was lost before it answered them.
func (a *attempt) answerAgain(link *turnLink) error {
	for _, frame := range link.welcome().Calls {
		if frame > a.frame {
			continue // the call is executed when its frame arrives
		}
		c := answeredCall{Frame: frame, Answer: agenttool.Refuse(callNotAnswered)}
		if i := slices.IndexFunc(a.calls, func(c answeredCall) bool { return c.Frame == frame }); i >= 0 {
			c = a.calls[i]
		}
		if err := link.answer(c); err != nil {
			return err
		}
	}
	return nil
}

func (l *turnLink) answer(c answeredCall) error {
	data, err := json.Marshal(c.Answer)
	if err != nil {
		return errors.Join(fmt.Errorf("answer the call in frame %d", c.Frame), err)
	}
	if err := l.link.Answer(c.Frame-l.base, data); err != nil {
		return fmt.Errorf("answer the call in frame %d: %w", c.Frame, err)
	}
	return nil
}

// offersTools reports whether the agent is offered the tools of overwinter. The installation or the
// profile may disable them, and an MCP server of the profile with the same name replaces them.
func (a *attempt) offersTools() bool {
	p := a.start.Profile
	switch {
	case a.NoTools:
		return false
	case p == nil:
		return true
	}
	named := func(s profile.MCPServer) bool { return s.Name == agenttool.Server }
	return (p.OverwinterTools == nil || *p.OverwinterTools) && !slices.ContainsFunc(p.MCPServers, named)
}
