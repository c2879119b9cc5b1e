package runner

import (
	"path/filepath"
	"strconv"
)

// Default paths in a sandbox.
const (
	DefaultBinary    = "/overwinter/bin/overwinter-runner"
	DefaultState     = "/overwinter/state"
	DefaultWorkspace = "/workspace"
	DefaultHome      = "/root"
)

// Paths are the paths in a sandbox. Its methods build the command lines that are executed there.
type Paths struct {
	Binary    string // the runner's program
	State     string // its socket and its journals
	Workspace string // the agent's working directory
	Home      string // the agent's home directory
}

// DefaultPaths returns the paths of the images that this system builds.
func DefaultPaths() Paths {
	return Paths{Binary: DefaultBinary, State: DefaultState, Workspace: DefaultWorkspace, Home: DefaultHome}
}

// Exec is a command to run in the sandbox.
type Exec struct {
	Argv  []string
	Stdin []byte // all of its stdin, which is closed after it
}

// Serve returns the sandbox's entry command. TokenVariable must be in its environment.
func (p Paths) Serve() []string {
	return []string{p.Binary, "serve", "--dir", p.State, "--home", p.Home, "--workspace", p.Workspace}
}

// Attach returns the command line whose stdin and stdout are passed to Dial. Run and frame are
// included only to be visible in the list of processes.
func (p Paths) Attach(h Hello) []string {
	return []string{p.Binary, "attach", "--dir", p.State, "--run", h.Run, "--from", strconv.FormatInt(h.From, 10)}
}

// AttachNext is Attach for a run that is not known yet. The command waits for its first hello for MaxDetached.
func (p Paths) AttachNext() []string { return p.Attach(Hello{}) }

// SocketPath returns the socket of the runner with that state directory.
func SocketPath(state string) string { return filepath.Join(state, "runner.sock") }

// CallSocketPath returns the socket on which the runner with that state directory accepts calls of
// overwinter's tools from programs in the sandbox.
func CallSocketPath(state string) string { return filepath.Join(state, "tools.sock") }

// IndexDir returns the directory in which the runner with that state directory stores its index of
// the workspace.
func IndexDir(state string) string { return filepath.Join(state, "workspace") }
