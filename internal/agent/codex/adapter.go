package codex

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/bridged"
	"github.com/overwinter-dev/overwinter/internal/agent/codex/codexformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/runner"
)

// Names shared with package codexformat.
const (
	Command       = codexformat.Command
	SecretKey     = codexformat.SecretKey
	SecretBaseURL = codexformat.SecretBaseURL
	Version       = codexformat.Version
	Binary        = codexformat.Binary
)

// Name is the agent's name in the API.
const Name = "codex"

// Adapter is the adapter for Codex. The zero value is ready to use.
type Adapter struct{}

var (
	_ agent.Adapter   = Adapter{}
	_ agent.Installer = Adapter{}
	_ agent.Answerer  = Adapter{}
	_ agent.Profiled  = Adapter{}
	_ agent.Steerer   = Adapter{}
)

// New returns the adapter.
func New() Adapter { return Adapter{} }

// Name is "codex".
func (Adapter) Name() string { return Name }

// Describe returns the public description of the agent.
func (Adapter) Describe() agent.Description {
	return agent.Description{
		Name:    Name,
		Title:   "Codex",
		Summary: "OpenAI's coding agent, version " + Version + ". Needs the secret " + SecretKey + ".",
		Version: Version,
		Models: []string{
			"default", "gpt-6.1-sol", "gpt-6.1-terra", "gpt-6-astra", "gpt-6-sol", "gpt-6-luna",
			"gpt-5.6-sol", "gpt-5.6-terra", "gpt-5.6-luna", "gpt-5.5",
		},
		Capabilities: []string{agent.CapabilityImages, agent.CapabilitySteer, "abort", "resume", "revert", "thinking", "subagents", "questions", "permissions", "rejection-message", "usage", "model", "profiles"},
		Secrets:      append([]agent.Need{{Name: SecretKey, Required: true}}, agent.Optional(SecretBaseURL)...),
	}
}

// Launch starts the bridge, which starts Codex. The key does not depend on whether there is a
// session to resume, so that the process of the first prompt serves the second one too.
func (Adapter) Launch(in agent.LaunchInput) (agent.Launch, error) {
	if err := bridged.Validate("Codex", in); err != nil {
		return agent.Launch{}, err
	}
	argv := []string{runner.DefaultBinary, Command, "--program", Binary, "--session", in.SessionID}
	env := map[string]string{}
	profile := ""
	if in.Profile != nil {
		maps.Copy(env, in.Profile.Environment)
		b, err := json.Marshal(in.Profile)
		if err != nil {
			return agent.Launch{}, fmt.Errorf("launch Codex: encode the profile: %w", err)
		}
		sum := sha256.Sum256(b)
		profile = hex.EncodeToString(sum[:8])
	}
	if model := in.ChosenModel(); model != "" && model != agent.DefaultModel {
		argv = append(argv, "--model", model)
	}
	if !in.Permissions.Free() {
		argv = append(argv, "--ask")
	}
	for _, tool := range slices.Sorted(maps.Keys(in.Permissions.Tools)) {
		if in.Permissions.Tools[tool] == permission.Deny {
			argv = append(argv, "--deny", tool)
		}
	}
	key := strings.Join(argv, " ") + " " + profile
	if len(in.Tools) > 0 {
		env[stdio.EnvTools] = stdio.EncodeTools(in.Tools)
		key += " " + env[stdio.EnvTools]
	}
	if in.Resume {
		argv = append(argv, "--resume")
	}
	env["HOME"], env["CODEX_HOME"] = in.Home, path.Join(in.Home, codexHome)
	return agent.Launch{
		Argv: argv,
		Key:  key,
		Env:  env,
		Dir:  in.Workspace,
		Transcripts: []string{
			path.Join(in.Home, codexHome, "sessions/*/*/*/rollout-*.jsonl"),
			codexformat.NotebookPath(path.Join(in.Home, codexHome), in.SessionID),
		},
		Secrets: []string{SecretKey, SecretBaseURL},
	}, nil
}

// codexHome is the directory, below the home directory, in which Codex keeps all of its files.
const codexHome = ".codex"

// Prompt returns the line that delivers the prompt of a run.
func (Adapter) Prompt(in agent.PromptInput) ([]byte, error) { return bridged.Prompt("Codex", in) }

// Steer returns the line that adds a prompt to the running turn. The bridge reports if the agent
// does not accept it.
func (Adapter) Steer(in agent.PromptInput) ([]byte, error) { return bridged.Steer("Codex", in) }

// Interrupt returns a line that names the run, so that a late interrupt affects no other turn.
func (Adapter) Interrupt(runID string) agent.Interrupt { return bridged.Interrupt(runID) }
