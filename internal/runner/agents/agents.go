// Package agents lists the runner's programs for agents: the part of an agent's support that runs
// in the sandbox. Most are bridges between the runner, which exchanges lines, and an agent that is
// driven over a protocol; one is an agent itself. The other part, which runs in a worker, is below
// internal/agent.
package agents

import (
	"io"

	"github.com/overwinter-dev/overwinter/internal/agent/acp/acpformat"
	"github.com/overwinter-dev/overwinter/internal/agent/codex/codexformat"
	"github.com/overwinter-dev/overwinter/internal/agent/demo/demoformat"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode/opencodeformat"
	"github.com/overwinter-dev/overwinter/internal/runner/agents/acpbridge"
	"github.com/overwinter-dev/overwinter/internal/runner/agents/codexbridge"
	"github.com/overwinter-dev/overwinter/internal/runner/agents/demoagent"
	"github.com/overwinter-dev/overwinter/internal/runner/agents/geminibridge"
	"github.com/overwinter-dev/overwinter/internal/runner/agents/opencodebridge"
)

// Program is a program of an agent. args are the arguments after its command. It returns its exit
// code.
type Program func(args []string, stdin io.Reader, stdout, stderr io.Writer) int

// Get returns the program for the runner's first argument, or nil.
func Get(command string) Program { return programs[command] }

var programs = map[string]Program{
	acpformat.Command:      acpbridge.Main,
	codexformat.Command:    codexbridge.Main,
	demoformat.Command:     demoagent.Main,
	geminiformat.Command:   geminibridge.Main,
	opencodeformat.Command: opencodebridge.Main,
}
