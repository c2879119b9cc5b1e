package session

import (
	"fmt"
	"time"
)

// ActivityState is a finer subdivision of a session's status.
type ActivityState string

// The activities of a session.
const (
	NotStarted       ActivityState = "not_started" // it has no sandbox until its first prompt or a wake
	Starting         ActivityState = "starting"    // its sandbox is created or restored
	Working          ActivityState = "working"     // a prompt is running, or about to run
	WaitingForAnswer ActivityState = "waiting_for_answer"
	Idle             ActivityState = "idle"
	Saving           ActivityState = "hibernating"
	Asleep           ActivityState = "hibernated"
	Failed           ActivityState = "error"
	Ended            ActivityState = "terminated"
)

// The steps of a start. Only a new workspace has the clone and the setup.
const (
	StepImage   = "image"
	StepSandbox = "sandbox"
	StepClone   = "clone"
	StepSetup   = "setup"
	stepWait    = "wait" // others keep failing: see Breaker
)

// Activity is the current activity of a session.
type Activity struct {
	State ActivityState
	Step  string // of a start
	Text  string // for people
	// Until is when a waiting step is retried; zero for none.
	Until time.Time
}

// Activity derives the activity of the session from its row.
func (s Session) Activity() Activity {
	switch s.Status {
	case Initializing:
		switch unused := s.Lazy && s.Generation == 0; {
		case unused && s.Queue.Hold.Held():
			return Activity{State: NotStarted, Text: "has no sandbox yet; its queue is held until a release"}
		case unused && s.Queue.Queued == 0:
			return Activity{State: NotStarted, Text: "has no sandbox yet; waits for its first prompt"}
		}
		return s.starting("starts")
	case Restoring:
		return s.starting("wakes")
	case Running:
		return s.awake()
	case Hibernating:
		return Activity{State: Saving, Text: "saves its files and memory"}
	case Hibernated:
		if s.Queue.Processing > 0 && s.QuestionsOpen > 0 {
			return Activity{State: WaitingForAnswer, Text: "hibernated; wakes for the answer to a question"}
		}
		if s.Queue.Hold.Held() {
			return Activity{State: Asleep, Text: "hibernated; its queue is held until a release"}
		}
		return Activity{State: Asleep, Text: "hibernated; wakes for the next prompt"}
	case Error:
		return Activity{State: Failed, Text: "waits for recover or stop"}
	default:
		return Activity{State: Ended, Text: "terminated"}
	}
}

// Starts reports whether the session's sandbox is being created or restored.
func (s Session) Starts() bool { return s.Activity().State == Starting }

func (s Session) starting(verb string) Activity {
	texts := map[string]string{
		StepImage: "prepares the image of the agent", StepSandbox: "creates the sandbox", StepClone: "clones the repository", StepSetup: "runs the setup script",
	}
	if w := s.StartWait; w != nil && s.Step != StepClone && s.Step != StepSetup {
		return Activity{State: Starting, Step: stepWait, Until: w.Until, Text: fmt.Sprintf(
			"%s: waits, since %d starts in a row have failed; the next one is tried at %s", verb, w.Failures, w.Until.UTC().Format(time.RFC3339))}
	}
	step := s.Step
	if texts[step] == "" {
		step = StepSandbox
	}
	return Activity{State: Starting, Step: step, Text: verb + ": " + texts[step]}
}

func (s Session) awake() Activity {
	switch {
	case s.QuestionsOpen == 1:
		return Activity{State: WaitingForAnswer, Text: "waits for the answer to a question"}
	case s.QuestionsOpen > 1:
		return Activity{State: WaitingForAnswer, Text: fmt.Sprintf("waits for answers to %d questions", s.QuestionsOpen)}
	case s.Queue.Processing > 0:
		return Activity{State: Working, Text: "works on a prompt"}
	case s.Queue.Hold.Held():
		return Activity{State: Idle, Text: fmt.Sprintf("idle; its queue is held until a release; hibernates after %s", s.IdleTimeout.Round(time.Millisecond))}
	case s.Queue.Queued > 0:
		return Activity{State: Working, Text: "is about to work on a prompt"}
	default:
		return Activity{State: Idle, Text: fmt.Sprintf("idle; hibernates after %s", s.IdleTimeout.Round(time.Millisecond))}
	}
}
