package agent

// CapabilitySteer is the capability of agents that take prompts in a running turn.
const CapabilitySteer = "steer"

// Steerer is an adapter whose agent takes prompts in a running turn. Its translators are Expecters.
type Steerer interface {
	// Steer returns the input that delivers a prompt to the agent's stdin in the turn of the run.
	// It is written to a process once, or twice to one that acts on the first alone.
	Steer(PromptInput) ([]byte, error)
}

// Expecter is a translator of a turn that prompts are given to.
//
// The turn must not end while a prompt is on its way: an agent that has just finished would begin to work on it after the end. So the
// translator is notified before the prompt is written. From then on a turn ends only when the agent has taken the prompt or declined it,
// or when its process has ended, which leaves the prompt to be given again.
type Expecter interface {
	// Expect is called before a prompt is written to the agent. With the same prompt again it changes nothing. It reports whether the
	// agent has neither taken nor declined the prompt.
	Expect(Steered) (waits bool)
}

// Steered is a prompt that is given to a running turn.
type Steered struct {
	PromptID string
	Author   string
}

// SteerVerdict reports whether an agent accepted a prompt for its running turn. One that it has not
// taken is given again later.
type SteerVerdict struct {
	PromptID string
	Taken    bool
}
