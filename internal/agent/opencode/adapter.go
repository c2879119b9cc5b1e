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

// Names that both halves have in common.
const (
	Command      = opencodeformat.Command
	Version      = opencodeformat.Version
	Binary       = opencodeformat.Binary
	SecretConfig = opencodeformat.SecretConfig
)

// Name is the agent's name in the API.
const Name = "opencode"

// Adapter is OpenCode as the rest of overwinter sees it. The zero value is ready.
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

// Describe returns what clients see of the agent.
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
		// None is required: it has models that need no key, and a repository may configure providers of its machine.
		Secrets: agent.Optional(opencodeformat.Secrets()...),
	}
}

// modelName is a model as OpenCode names it: its provider and its own name.
var modelName = lazyregexp.New(`^[A-Za-z0-9_.-]+/\S+$`)

// Launch starts the bridge to serve prompts on stdin until it is closed. The bridge finds out by
// itself whether there is a session to resume.
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

// Prompt is the line that gives the bridge a prompt. Its ids are made from the run's, so that a
// prompt that is delivered again is known again.
func (Adapter) Prompt(in agent.PromptInput) ([]byte, error) { return bridged.Prompt("OpenCode", in) }

// Steer is the line of a prompt for the running turn. The bridge says if the agent does not take it.
func (Adapter) Steer(in agent.PromptInput) ([]byte, error) { return bridged.Steer("OpenCode", in) }

// Interrupt writes a line that names the run, so that one that comes late hits no other turn.
func (Adapter) Interrupt(runID string) agent.Interrupt { return bridged.Interrupt(runID) }
