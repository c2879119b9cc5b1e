package agent

import "io"

// Companion is an adapter with its own program, which is part of the runner, so that every sandbox
// has it. The runner is called with Command as its first argument. Such a program is the agent
// itself, or connects the runner, which exchanges lines only, to an agent that is driven over a
// protocol: it turns the prompts that it reads into requests, and prints each message of the agent
// unchanged, on one line.
type Companion interface {
	// Command is the word that calls the program, such as "demo-agent".
	Command() string
	// Main is the program. It returns its exit code.
	Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int
}
