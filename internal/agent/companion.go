package agent

import "io"

// Companion is an adapter that brings a program of its own: one that comes with the runner, so that
// every sandbox has it. The runner is called with Command as its first argument. Such a program is
// the agent itself, or stands between the runner, which knows lines alone, and an agent that wants
// to be spoken to: it makes requests of the prompts that it reads, and prints what the agent says
// as it is, a line each.
type Companion interface {
	// Command is the word that calls the program, such as "demo-agent".
	Command() string
	// Main is the program. It returns its exit code.
	Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int
}
