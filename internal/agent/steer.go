package agent

// CapabilitySteer is the capability of agents that accept prompts in a running turn.
const CapabilitySteer = "steer"

// Steerer is an adapter whose agent accepts prompts in a running turn. Its translators are
// Expecters.
type Steerer interface {
	// Steer returns the input for the agent's stdin that adds a prompt to the turn of the run. It
	// is written to a process once, or twice to a process that acts only on the first.
	Steer(PromptInput) ([]byte, error)
}

// Expecter is a translator of a turn to which prompts can be added.
//
// The turn must not end while a prompt is pending: an agent that has just finished would start on
// it after the end. So the translator is notified before the prompt is written. From then on, a
// turn ends only when the agent has accepted or declined the prompt, or when its process has
// exited, after which the prompt is delivered again.
type Expecter interface {
	// Expect is called before a prompt is written to the agent. Repeating it for the same prompt
	// has no effect. It reports whether the agent has neither accepted nor declined the prompt.
	Expect(Steered) (waits bool)
}

// Steered is a prompt added to a running turn.
type Steered struct {
	PromptID string
	Author   string
}

// SteerVerdict reports whether an agent accepted a prompt for its running turn. A declined prompt
// is delivered again later.
type SteerVerdict struct {
	PromptID string
	Taken    bool
}
