package runner

import (
	"path/filepath"
	"strconv"
)

// Where things are in a sandbox.
const (
	DefaultBinary    = "/overwinter/bin/overwinter-runner"
	DefaultState     = "/overwinter/state"
	DefaultWorkspace = "/workspace"
	DefaultHome      = "/root"
)

// Paths says where things are in a sandbox and builds the command lines that
// are executed there.
type Paths struct {
	Binary    string // the runner's program
	State     string // its socket and its journals
	Workspace string // the agent's working directory
	Home      string // the agent's home directory
}

// DefaultPaths are the paths of the images that this system builds.
func DefaultPaths() Paths {
	return Paths{Binary: DefaultBinary, State: DefaultState, Workspace: DefaultWorkspace, Home: DefaultHome}
}

// Exec is a command to run in the sandbox.
type Exec struct {
	Argv  []string
	Stdin []byte // all of its stdin, to be closed after it
}

// Serve is the sandbox's entry command. TokenVariable must be in its environment.
func (p Paths) Serve() []string {
	return []string{p.Binary, "serve", "--dir", p.State, "--home", p.Home, "--workspace", p.Workspace}
}

// Attach is the command line whose stdin and stdout Dial is given. Run and frame are part of it for
// readers of the list of processes.
func (p Paths) Attach(h Hello) []string {
	return []string{p.Binary, "attach", "--dir", p.State, "--run", h.Run, "--from", strconv.FormatInt(h.From, 10)}
}

// SocketPath is where the runner of a state directory listens.
func SocketPath(state string) string { return filepath.Join(state, "runner.sock") }

// CallSocketPath is where the runner of a state directory takes calls of overwinter's tools from programs in the sandbox.
func CallSocketPath(state string) string { return filepath.Join(state, "tools.sock") }

// IndexDir is where the runner of a state directory keeps its index of the workspace.
func IndexDir(state string) string { return filepath.Join(state, "workspace") }
