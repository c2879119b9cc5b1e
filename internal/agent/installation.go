package agent

// Installer is an adapter whose agent is a separate program, installed into the image that its
// sandboxes start from.
type Installer interface {
	Installation() Installation
}

// Installation installs an agent into an image, once per content. Its content determines the
// image's name, so every pinned version must be in the commands.
type Installation struct {
	// Base is an image with the programs that the commands need. A local provider uses the host's
	// files instead.
	Base string
	// Commands run in order. Each must exit with 0.
	Commands [][]string
}
