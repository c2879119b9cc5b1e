package eventlog

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/overwinter-dev/overwinter/internal/question"
)

// Event is one entry of a session's log. Seq is contiguous from 1 in its session and is the
// position from which readers resume.
type Event struct {
	Seq            int64           `json:"seq"`
	Type           string          `json:"type"`
	SessionID      string          `json:"sessionId"`
	ConversationID string          `json:"conversationId,omitempty"`
	RunID          string          `json:"runId,omitempty"`
	At             time.Time       `json:"at"`
	Data           json.RawMessage `json:"data"`
}

// Draft is an event before it has a position.
type Draft struct {
	Type           string
	ConversationID string
	At             time.Time
	Data           json.RawMessage
	// Frame and N are the place of an event in its run. Each place is written once. The places of
	// an append ascend, and no frame is after its LastFrame.
	Frame int64
	N     int
}

// Append is a piece of one session's log: the events of some frames of a run and the translator's
// state after the last of them, committed together or not at all.
type Append struct {
	SessionID string
	RunID     string
	// Generation and Token fence the append: one of an older sandbox generation or attempt is
	// dropped completely with ErrFenced.
	Generation int64
	Token      string
	Events     []Draft
	// Questions and Resolved are the questions to people in the frames; they are written with the
	// events, after those of their frame.
	Questions []Question
	Resolved  []Resolution
	LastFrame int64
	State     []byte
	// Steers reports that the attempt gives the agent prompts during the running turn.
	Steers bool
}

// Question is a question to people from a frame.
type Question struct {
	Frame     int64
	Part      int64 // part of the run: an agent may reuse ids in each
	Asked     question.Asked
	Shown     *question.Asked // Asked without the values of secrets; nil if it is the same
	At        time.Time
	ExpiresAt time.Time
	// Decided is the answer if no person needs to be asked; nil otherwise. It is stored so that the
	// next attempt can repeat it.
	Decided *question.Answer
}

// Resolution reports that, according to a frame, the agent no longer waits for an answer.
type Resolution struct {
	Frame   int64
	Part    int64  // of the run
	AgentID string // the agent's id of the question
}

// ErrFenced means that a newer generation or attempt owns the run.
var ErrFenced = errors.New("eventlog: fenced off by a newer generation or attempt")

// ErrBusy means that another transaction has locked the session, so that nothing was written.
var ErrBusy = errors.New("eventlog: another transaction holds the session")

// PositionGoneError means that events after the requested position have been deleted.
type PositionGoneError struct {
	First int64 // the oldest seq that still exists
}

func (e *PositionGoneError) Error() string { return "eventlog: the position has been deleted" }

// FuturePositionError means that the requested position has not been written yet.
type FuturePositionError struct {
	Newest int64
}

func (e *FuturePositionError) Error() string { return "eventlog: the position is in the future" }
