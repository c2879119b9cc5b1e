package turn

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/attachment"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// turnState is the state of a run that passes from worker to worker: the translator's state and the
// end of the turn, once a frame has contained it. If a worker is lost between that frame and the
// run's outcome, the next worker must not wait for the end again.
type turnState struct {
	Translator []byte         `json:"translator"`
	End        *agent.TurnEnd `json:"end,omitempty"`
	// Limits counts the turn's output. Runs of an earlier version have none.
	Limits conversation.Limiter `json:"limits"`
	// Held is the text of open blocks that is held back because it may be the start of a secret's
	// value.
	Held []heldText `json:"held,omitempty"`
	// Part is the part of the run that the translator reads.
	Part int64 `json:"part,omitempty"`
	// Given lists the questions that were answered before this part and that the agent has asked
	// again.
	Given []string `json:"given,omitempty"`
	// Called is the number of calls of overwinter's tools in the turn, and Calls has the answers to
	// the newest ones.
	Called int            `json:"called,omitempty"`
	Calls  []answeredCall `json:"calls,omitempty"`
}

// convert converts an agent's frames to events: it translates, masks and limits.
type convert struct {
	translator agent.Translator
	limits     *conversation.Limiter
	masking    masking
	runID      string
	part       int64 // see turnState
	given      []string
	// explain returns the reason for the failure of a turn whose key was refused by the model's
	// server. If nil, the agent's reason is used.
	explain func(agent.TurnEnd) string
	// view describes calls of tools in their blocks. If nil, blocks have no description.
	view    func(name string, input json.RawMessage) conversation.Tool
	retried func() // counts a request to a model that was sent again
	called  int
	calls   []answeredCall
}

// maxState bounds the state of a turn.
const maxState = 8 << 20

// encodeState encodes the state of a turn after a frame and returns the frame's events. If the
// state would be too large, it closes every open block, because open blocks make up most of a
// translator's state. If the state is still too large, encodeState returns an error.
func (c *convert) encodeState(end *agent.TurnEnd, events []eventlog.Draft, frame int64, at time.Time) ([]byte, []eventlog.Draft, error) {
	state, err := c.encode(end)
	if err == nil && len(state) > maxState {
		if events, err = c.closeOpen(at, events, frame); err == nil {
			state, err = c.encode(end)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	if len(state) > maxState {
		return nil, nil, final(Refused, fmt.Errorf("the turn has a state of %d bytes; at most %d are allowed", len(state), maxState))
	}
	return state, events, nil
}

func (c *convert) encode(end *agent.TurnEnd) ([]byte, error) {
	state, err := c.translator.State()
	if err != nil {
		return nil, err
	}
	return json.Marshal(turnState{Translator: state, End: end, Limits: *c.limits, Held: c.masking.held, Part: c.part, Given: c.given, Called: c.called, Calls: c.calls})
}

// resume continues after the run's last commit. The returned convert masks nothing yet.
func (x *Executor) resume(start run.Start) (*convert, *agent.TurnEnd, error) {
	adapter, err := x.Agents.Get(start.Agent)
	if err != nil {
		return nil, nil, final(Refused, err)
	}
	var state turnState
	if len(start.Run.Translator) > 0 {
		if err := json.Unmarshal(start.Run.Translator, &state); err != nil {
			return nil, nil, final(Refused, fmt.Errorf("state of run %s: %w", start.Run.ID, err))
		}
	}
	t, err := adapter.NewTranslator(agent.RunContext{
		RunID: run.AgentID(start.Run.ID, state.Part), PromptID: start.Prompt.ID, Author: start.Prompt.Author,
	}, state.Translator)
	if err != nil {
		return nil, nil, final(Refused, fmt.Errorf("continue run %s: %w", start.Run.ID, err))
	}
	c := &convert{
		runID: start.Run.ID, part: state.Part, given: state.Given, translator: t, limits: &state.Limits, masking: masking{held: state.Held},
		retried: func() { x.Retried(start.Agent) }, called: state.Called, calls: state.Calls,
	}
	if viewer, ok := adapter.(agent.Viewer); ok {
		c.view = viewer.Tool
	}
	return c, state.End, nil
}

// translation is the result of translating a frame, ready to be stored.
type translation struct {
	agent.Translation
	events []eventlog.Draft
	images []attachment.Attachment
}

// translate translates a frame. If the agent has too many open blocks afterwards, translate closes
// all of them, because the state of the turn grows with each open block and is written with every
// commit.
func (c *convert) translate(f agent.Frame) (translation, error) {
	translated, err := c.translator.Translate(f)
	if err != nil {
		return translation{}, err
	}
	images := c.kept(translated.Images)
	translated.End = c.masking.end(translated.End)
	if c.explain != nil && translated.End != nil && translated.End.Unauthorized != nil {
		translated.End.Reason = c.explain(*translated.End)
		translated.Events = append(translated.Events, conversation.Event{
			Type: conversation.EventError, At: f.At.UTC(),
			Data: conversation.Problem{Code: codeAuthentication, Message: translated.End.Reason},
		})
	}
	events, err := c.drafts(translated.Events, f.No)
	if err == nil && c.limits.Crowded() {
		events, err = c.closeOpen(f.At, events, f.No)
	}
	return translation{Translation: translated, events: events, images: images}, err
}

// drafts encodes the events of a frame, masked and within the limits of the turn.
func (c *convert) drafts(events []conversation.Event, frame int64) ([]eventlog.Draft, error) {
	var out []eventlog.Draft
	for _, e := range events {
		if b, ok := e.Data.(conversation.BlockStart); ok && b.Block.Subtype == conversation.SubtypeRetry && c.retried != nil {
			c.retried()
		}
		for _, e := range c.masking.events(e) {
			if c.runID != "" {
				e = conversation.InRun(e, session.RunOf(c.runID))
			}
			if c.view != nil {
				e = conversation.WithTool(e, c.view) // derived from the masked event, so that the description is masked too
			}
			encoded, err := c.limits.Encode(e)
			if err != nil {
				return nil, fmt.Errorf("frame %d: %w", frame, err)
			}
			for _, e := range encoded {
				out = append(out, eventlog.Draft{
					Type: string(e.Type), ConversationID: e.ConversationID, At: e.At, Data: e.JSON, Frame: frame, N: len(out),
				})
			}
		}
	}
	return out, nil
}

// closeOpen closes every block that is open and adds the events to those of a frame.
func (c *convert) closeOpen(at time.Time, events []eventlog.Draft, frame int64) ([]eventlog.Draft, error) {
	closing, err := c.drafts(c.translator.Cut(at), frame)
	if err != nil {
		return nil, err
	}
	next := 0
	for _, e := range events {
		if e.Frame == frame {
			next = e.N + 1
		}
	}
	for _, e := range closing {
		e.N += next
		events = append(events, e)
	}
	return events, nil
}
