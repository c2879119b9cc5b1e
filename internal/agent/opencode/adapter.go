package opencode

import (
	"encoding/json"
	"fmt"
	"path"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/bridged"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode/opencodeformat"
	"github.com/overwinter-dev/overwinter/internal/lazyregexp"
	"github.com/overwinter-dev/overwinter/internal/runner"
)

// Names shared with package opencodeformat.
const (
	Command      = opencodeformat.Command
	Version      = opencodeformat.Version
	Binary       = opencodeformat.Binary
	SecretConfig = opencodeformat.SecretConfig
)

// Name is the agent's name in the API.
const Name = "opencode"

// Adapter is the adapter for OpenCode. The zero value is ready to use.
type Adapter struct{}

var (
	_ agent.Adapter  = Adapter{}
	_ agent.Answerer = Adapter{}
	_ agent.Steerer  = Adapter{}
)

// New returns the adapter.
func New() Adapter { return Adapter{} }

// Name is "opencode".
func (Adapter) Name() string { return Name }

// Describe returns the public description of the agent.
func (Adapter) Describe() agent.Description {
	return agent.Description{
		Name:    Name,
		Title:   "OpenCode",
		Summary: "The open source coding agent, version " + Version + ". Works with the models of many providers, whose keys are secrets such as " + opencodeformat.SecretKeys[0] + ".",
		Version: Version,
		Models: []string{
			agent.DefaultModel,
			"anthropic/claude-opus-5-5", "anthropic/claude-sonnet-5", "anthropic/claude-haiku-4-5",
			"openai/gpt-6-sol", "openai/gpt-6-luna", "openai/gpt-5.3-codex",
			"google/gemini-3.1-pro-preview", "google/gemini-3.8-flash", "google/gemini-2.5-pro",
		},
		Capabilities: []string{
			agent.CapabilityImages, agent.CapabilitySteer, "abort", "resume", "thinking", "subagents", "questions", "permissions", "rejection-message", "usage", "cost", "model", "title", "commands", "profiles", "revert",
		},
		// None is required: some models need no key, and a repository may configure its own
		// providers.
		Secrets: agent.Optional(opencodeformat.Secrets()...),
	}
}

// modelName matches a model as OpenCode names it: its provider and its own name.
var modelName = lazyregexp.New(`^[A-Za-z0-9_.-]+/\S+$`)

// Launch starts the bridge to serve prompts on stdin until stdin is closed. The bridge itself
// determines whether there is a session to resume.
func (Adapter) Launch(in agent.LaunchInput) (agent.Launch, error) {
	if err := bridged.Validate("OpenCode", in); err != nil {
		return agent.Launch{}, err
	}
	model := in.ChosenModel()
	if model == agent.DefaultModel {
		model = ""
	}
	if model != "" && !modelName.MatchString(model) {
		return agent.Launch{}, fmt.Errorf("launch OpenCode: model %q has not the form provider/model", model)
	}
	settings, err := json.Marshal(configuration(in, model))
	if err != nil {
		return agent.Launch{}, fmt.Errorf("launch OpenCode: %w", err)
	}
	dir := transcriptDir(in.Home, in.SessionID)
	argv := []string{runner.DefaultBinary, Command, "--program", Binary, "--transcripts", dir}
	if model != "" {
		argv = append(argv, "--model", model)
	}
	env := map[string]string{
		"HOME":                          in.Home,
		"XDG_CONFIG_HOME":               path.Join(in.Home, ".config"),
		"XDG_DATA_HOME":                 path.Join(in.Home, ".local/share"),
		"XDG_STATE_HOME":                path.Join(in.Home, ".local/state"),
		"XDG_CACHE_HOME":                path.Join(in.Home, ".cache"),
		opencodeformat.SettingsVariable: string(settings),
	}
	return agent.Launch{
		Argv: argv, Env: env, Dir: in.Workspace,
		Transcripts: []string{path.Join(dir, "*"+opencodeformat.TranscriptSuffix)},
		Secrets:     opencodeformat.Secrets(),
	}, nil
}

func transcriptDir(home, sessionID string) string {
	return path.Join(home, ".local/share/overwinter/opencode", sessionID)
}

// Prompt returns the line that delivers a prompt to the bridge. The prompt's message id is derived
// from the run's id, so that a repeated delivery is recognized.
func (Adapter) Prompt(in agent.PromptInput) ([]byte, error) { return bridged.Prompt("OpenCode", in) }

// Steer returns the line that adds a prompt to the running turn. The bridge reports if the agent
// does not accept it.
func (Adapter) Steer(in agent.PromptInput) ([]byte, error) { return bridged.Steer("OpenCode", in) }

// Interrupt returns a line that names the run, so that a late interrupt affects no other turn.
func (Adapter) Interrupt(runID string) agent.Interrupt { return bridged.Interrupt(runID) }
