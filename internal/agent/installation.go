package agent

// Installer is an adapter whose agent is a separate program, installed into the image that its
// sandboxes start from.
type Installer interface {
	Installation() Installation
}

// Installation puts an agent into an image, once per content: what it says is the
// name of what it makes, so every pin belongs in the commands.
type Installation struct {
	// Base is the image that has what the commands need. On a local provider it is
	// the host's own.
	Base string
	// Commands run in order; each must end with 0.
	Commands [][]string
}
