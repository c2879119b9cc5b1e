package acp

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/acp/acpformat"
	"github.com/overwinter-dev/overwinter/internal/agent/bridged"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// Names shared with package acpformat.
const (
	Name           = acpformat.Name
	Command        = acpformat.Command
	EnvCommand     = acpformat.EnvCommand
	EnvTranscripts = acpformat.EnvTranscripts
)

// Adapter is the adapter for any agent that speaks the Agent Client Protocol.
// The zero value is ready to use.
type Adapter struct{}

var (
	_ agent.Adapter  = Adapter{}
	_ agent.Answerer = Adapter{}
	_ agent.Profiled = Adapter{}
)

// New returns the adapter.
func New() Adapter { return Adapter{} }

// Name is "acp".
func (Adapter) Name() string { return Name }

// Describe returns the public description of the agent.
func (Adapter) Describe() agent.Description {
	return agent.Description{
		Name:  Name,
		Title: "ACP agent",
		Summary: "Any agent that speaks the Agent Client Protocol. Its command line is " + EnvCommand +
			", in the profile's environment or a secret.",
		Models:       []string{},
		Capabilities: []string{agent.CapabilityImages, "abort", "resume", "thinking", "permissions", "usage", "model", "profiles"},
		Secrets:      []agent.Need{{Name: EnvCommand, Required: true, Purpose: `the agent's command line, such as "opencode acp"`}},
	}
}

// Launch starts the bridge, which starts the agent.
func (Adapter) Launch(in agent.LaunchInput) (agent.Launch, error) {
	if err := bridged.Validate("the agent", in); err != nil {
		return agent.Launch{}, err
	}
	argv := []string{runner.DefaultBinary, Command, "--session", in.SessionID}
	if in.Permissions.Free() {
		argv = append(argv, "--allow")
	}
	env := map[string]string{}
	model := in.ChosenModel()
	transcripts := []string{acpformat.NotebookPath(in.Home, in.SessionID)}
	if p := in.Profile; p != nil {
		maps.Copy(env, p.Environment)
		if p.Instructions != "" {
			env[acpformat.EnvInstructions] = p.Instructions
		}
		for _, pattern := range strings.Split(p.Environment[EnvTranscripts], ":") {
			if pattern == "" {
				continue
			}
			pattern = path.Join(in.Home, path.Join("/", pattern)) // never outside of the home
			if _, err := path.Match(pattern, ""); err != nil {
				return agent.Launch{}, fmt.Errorf("launch the agent: %s: %q: %w", EnvTranscripts, pattern, err)
			}
			transcripts = append(transcripts, pattern)
		}
	}
	if list := in.MCPServers(); len(list) > 0 {
		encoded, err := json.Marshal(servers(list))
		if err != nil {
			return agent.Launch{}, fmt.Errorf("launch the agent: MCP servers: %w", err)
		}
		env[acpformat.EnvServers] = string(encoded)
	}
	if model != "" {
		argv = append(argv, "--model", model)
	}
	env["HOME"] = in.Home
	// The profile sets the command line, so the process gets only the secrets that the profile
	// names. A command line in the profile takes precedence over a stored one, which would
	// otherwise replace it in the environment.
	var wanted []string
	if env[EnvCommand] == "" {
		wanted = []string{EnvCommand}
	}
	return agent.Launch{Argv: argv, Env: env, Dir: in.Workspace, Transcripts: transcripts, Secrets: wanted}, nil
}

// server is an MCP server in the protocol's form.
type server struct {
	Type    string     `json:"type,omitempty"`
	Name    string     `json:"name"`
	Command string     `json:"command,omitempty"`
	Args    []string   `json:"args,omitzero"`
	Env     []variable `json:"env,omitzero"`
	URL     string     `json:"url,omitempty"`
	Headers []variable `json:"headers,omitzero"`
}

type variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func servers(list []profile.MCPServer) []server {
	out := make([]server, len(list))
	for i, s := range list {
		if s.Command != "" {
			out[i] = server{Name: s.Name, Command: s.Command, Args: append([]string{}, s.Args...), Env: variables(s.Environment)}
		} else {
			out[i] = server{Type: "http", Name: s.Name, URL: s.URL, Headers: variables(s.Headers)}
		}
	}
	return out
}

func variables(m map[string]string) []variable {
	out := []variable{}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, variable{k, m[k]})
	}
	return out
}

// ProfileFiles returns no files: the protocol has no place for skills, subagents and commands.
// Instructions are sent with the first prompt, MCP servers with the session.
func (Adapter) ProfileFiles(agent.LaunchInput) ([]transcript.File, error) { return nil, nil }

// Prompt returns the line that begins a run.
func (Adapter) Prompt(in agent.PromptInput) ([]byte, error) { return bridged.Prompt("the agent", in) }

// Interrupt names the run, so that a late interrupt affects no other run.
func (Adapter) Interrupt(runID string) agent.Interrupt { return bridged.Interrupt(runID) }

// Answer sends the chosen option to the bridge.
func (Adapter) Answer(q agent.Question, a agent.Answer) ([]byte, error) { return Answer(q, a) }
