package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini"
	"github.com/overwinter-dev/overwinter/internal/agent/npm"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode"
)

// starter is an agent with a slow start.
type starter struct {
	name, title string
	program     interface{ Packages() []npm.Package }
	secrets     func(models *modelserver.Server) map[string]string
	// bare is the agent's own command for one prompt, and a text in the line of its answer.
	bare func(dir, home string, models *modelserver.Server) (*exec.Cmd, string, error)
}

var starters = []starter{
	{
		name: opencode.Name, title: "OpenCode", program: opencode.New(),
		secrets: func(models *modelserver.Server) map[string]string {
			return map[string]string{"ANTHROPIC_API_KEY": "sk-bench", "ANTHROPIC_BASE_URL": models.URL()}
		},
		bare: func(dir, home string, models *modelserver.Server) (*exec.Cmd, string, error) {
			command := exec.Command(filepath.Join(dir, "bin", "opencode"), "run", "--format", "json", agentPrompt) // firstText ends it
			command.Env = []string{
				"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1",
				`OPENCODE_CONFIG_CONTENT={"provider":{"anthropic":{"options":{"baseURL":"` + models.URL() + `/v1","apiKey":"sk-bench"}}},` +
					`"model":"anthropic/claude-sonnet-5","share":"disabled","autoupdate":false,"disabled_providers":["opencode"]}`,
			}
			return command, `"type":"text"`, nil
		},
	},
	{
		name: gemini.Name, title: "Gemini CLI", program: gemini.New(),
		secrets: func(models *modelserver.Server) map[string]string {
			return map[string]string{gemini.SecretKey: "sk-bench", gemini.SecretBaseURL: models.URL()}
		},
		bare: func(dir, home string, models *modelserver.Server) (*exec.Cmd, string, error) {
			settings := filepath.Join(home, ".gemini", "settings.json")
			if err := os.MkdirAll(filepath.Dir(settings), 0o700); err != nil {
				return nil, "", err
			}
			if err := os.WriteFile(settings, []byte(`{"security":{"auth":{"selectedType":"gemini-api-key"}}}`), 0o600); err != nil {
				return nil, "", err
			}
			command := exec.Command("node", filepath.Join(dir, "bundle", "gemini.js"), // firstText ends it
				"--model", gemini.DefaultModel, "--output-format", "stream-json", "--yolo", "--prompt", agentPrompt)
			command.Env = []string{
				gemini.SecretKey + "=sk-bench", gemini.SecretBaseURL + "=" + models.URL(),
				"GEMINI_CLI_TRUST_WORKSPACE=true", "GEMINI_CLI_NO_RELAUNCH=true", "GEMINI_TELEMETRY_ENABLED=false",
			}
			return command, `"role":"assistant"`, nil
		},
	},
}

// measureTexts compares the first text of a new session with that of the agent's own command.
func measureTexts(ctx context.Context, b *bench, s *section) error {
	s.note("From the POST that creates a session with a prompt until the first text is with the reader: the second session of the agent and later ones, as the first makes the image. " +
		"The floor is the command that a person runs for one prompt (`opencode run`, `gemini --prompt`), in an empty home directory, until its first line of " +
		"text. Both talk to the same model server, which answers at once, and take turns.")
	for _, a := range starters {
		if err := measureFirstText(ctx, b, s, a); err != nil {
			return fmt.Errorf("%s: %w", a.title, err)
		}
	}
	return nil
}

func measureFirstText(ctx context.Context, b *bench, s *section, a starter) error {
	name := a.title + ": second session → first text"
	dir := installed(a.program)
	if dir == "" {
		s.skip(name, notInstalled, within(1.3))
		return nil
	}
	sys, err := b.system(ctx)
	if err != nil {
		return err
	}
	models := newModels()
	defer models.Close()
	if err := sys.client.secrets(ctx, a.secrets(models)); err != nil {
		return err
	}
	ours, bare := &samples{}, &samples{}
	for i := range 4 {
		kept := &samples{}
		own := &samples{}
		if i > 0 { // the first round builds the image and warms up caches
			kept, own = ours, bare
		}
		took, err := a.runBare(ctx, dir, models)
		if err != nil {
			return fmt.Errorf("bare: %w", err)
		}
		own.add(took)
		if took, err = newSessionText(ctx, sys.client, a.name); err != nil {
			return fmt.Errorf("session: %w", err)
		}
		kept.add(took)
	}
	s.compare(name, distribution(ours), "its own command", distribution(bare), within(1.3))
	return nil
}

// newSessionText returns the time from the creation of a session to its first text.
func newSessionText(ctx context.Context, c *client, agent string) (time.Duration, error) {
	began := time.Now()
	p, err := newProbeOf(ctx, c, agent)
	if err != nil {
		return 0, err
	}
	defer p.close(context.WithoutCancel(ctx))
	before := time.Since(began)
	var took prompts
	if err := p.send(ctx, agentPrompt, &took); err != nil {
		return 0, err
	}
	return before + took.first.p50(), nil
}

// runBare runs the agent's own command in a fresh home.
func (a starter) runBare(ctx context.Context, dir string, models *modelserver.Server) (_ time.Duration, err error) {
	home, err := os.MkdirTemp("", "overwinter-bench-agent-*")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(home)) }()
	command, match, err := a.bare(dir, home, models)
	if err != nil {
		return 0, err
	}
	command.Dir = home
	command.Env = append(command.Env, "PATH="+os.Getenv("PATH"), "LANG=C.UTF-8", "HOME="+home, "TMPDIR="+home)
	return firstText(ctx, command, match)
}
