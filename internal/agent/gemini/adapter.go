package gemini

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/acp"
	"github.com/overwinter-dev/overwinter/internal/agent/bridged"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/runner"
)

// Names shared with package geminiformat.
const (
	Command = geminiformat.Command
)

// Name is the agent's name in the API.
const Name = "gemini-cli"

// The names of the secrets that the program reads from its environment.
const (
	SecretKey     = "GEMINI_API_KEY"
	SecretBaseURL = "GOOGLE_GEMINI_BASE_URL"
	secretGoogle  = "GOOGLE_API_KEY" // with secretVertex
)

// DefaultModel is used if no model is named. Without it, the program would ask a model which one to
// use.
const DefaultModel = "gemini-2.5-pro"

// models are the models that the program offers, the default first.
var models = []string{
	DefaultModel, "gemini-3.1-pro-preview", "gemini-3.8-flash", "gemini-3-flash-preview", "gemini-3.5-flash-lite", "auto",
}

// Adapter is the adapter for Gemini CLI. The zero value is ready to use.
type Adapter struct{}

var (
	_ agent.Adapter  = Adapter{}
	_ agent.Answerer = Adapter{}
	_ agent.Profiled = Adapter{}
)

// New returns the adapter.
func New() Adapter { return Adapter{} }

// Name is "gemini-cli".
func (Adapter) Name() string { return Name }

// Describe returns the public description of the agent.
func (Adapter) Describe() agent.Description {
	return agent.Description{
		Name:    Name,
		Title:   "Gemini CLI",
		Summary: "Google's coding agent, version " + Version + ". Needs the secret " + SecretKey + ".",
		Version: Version,
		Models:  slices.Clone(models),
		Capabilities: []string{
			agent.CapabilityImages, "abort", "resume", "revert", "thinking", "subagents", "permissions", "usage", "model", "profiles",
		},
		Secrets: append([]agent.Need{{
			Name: SecretKey, Required: true, Alternatives: []string{secretGoogle, geminiformat.SecretVertex},
		}}, agent.Optional(SecretBaseURL, secretGoogle, geminiformat.SecretVertex)...),
	}
}

// Launch starts the bridge, which starts the program. The bridge resumes from the notebook in any
// sandbox.
func (Adapter) Launch(in agent.LaunchInput) (agent.Launch, error) {
	if err := bridged.Validate("Gemini CLI", in); err != nil {
		return agent.Launch{}, err
	}
	model := cmp.Or(in.ChosenModel(), DefaultModel)
	settings, err := json.Marshal(settingsOf(in))
	if err != nil {
		return agent.Launch{}, fmt.Errorf("launch Gemini CLI: settings: %w", err)
	}
	env := map[string]string{}
	if in.Profile != nil {
		maps.Copy(env, in.Profile.Environment)
	}
	maps.Copy(env, map[string]string{
		"HOME": in.Home, geminiformat.EnvSettings: string(settings),
		"GEMINI_CLI_NO_RELAUNCH":     "true", // otherwise it relaunches itself as a child that no signal reaches
		"GEMINI_CLI_TRUST_WORKSPACE": "true",
		"GEMINI_TELEMETRY_ENABLED":   "false",
	})
	argv := []string{runner.DefaultBinary, Command, "--session", in.SessionID}
	mode := "default"
	if !asks(in.Permissions) {
		argv, mode = append(argv, "--allow"), "yolo"
	}
	return agent.Launch{
		Argv: append(argv, "--", "node", Program, "--acp", "--model", model, "--approval-mode", mode),
		Env:  env, Dir: in.Workspace,
		Transcripts: []string{geminiformat.NotebookPath(in.Home, in.SessionID)},
		Secrets:     []string{SecretKey, SecretBaseURL, secretGoogle, geminiformat.SecretVertex},
	}, nil
}

// Prompt returns the line that begins a run.
func (Adapter) Prompt(in agent.PromptInput) ([]byte, error) { return bridged.Prompt("Gemini CLI", in) }

// Interrupt names the run, so that a late interrupt affects no other run.
func (Adapter) Interrupt(runID string) agent.Interrupt { return bridged.Interrupt(runID) }

// Answer sends the chosen option to the bridge. The agent accepts no message with a rejection.
func (Adapter) Answer(q agent.Question, a agent.Answer) ([]byte, error) { return acp.Answer(q, a) }

// asks reports whether any tool needs a person's permission. The program itself rejects denied
// tools. If it asks at all, it rejects every subagent.
func asks(p permission.Rules) bool {
	if p.Of("") != permission.Allow {
		return true
	}
	for _, policy := range p.Tools {
		if policy == permission.Ask {
			return true
		}
	}
	return false
}

// denied returns the tools that may not be used at all.
func denied(p permission.Rules) []string {
	var out []string
	for _, tool := range slices.Sorted(maps.Keys(p.Tools)) {
		if p.Tools[tool] == permission.Deny {
			out = append(out, tool)
		}
	}
	return out
}
