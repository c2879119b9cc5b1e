// Package catalog lists the agents that this build supports. It is the only place, apart from the
// agents' own packages, that names an agent.
package catalog

import (
	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/acp"
	"github.com/overwinter-dev/overwinter/internal/agent/claude"
	"github.com/overwinter-dev/overwinter/internal/agent/codex"
	"github.com/overwinter-dev/overwinter/internal/agent/demo"
	"github.com/overwinter-dev/overwinter/internal/agent/gemini"
	"github.com/overwinter-dev/overwinter/internal/agent/opencode"
)

// Agents returns all agents, in display order.
func Agents() *agent.Registry {
	return agent.NewRegistry(demo.New(), claude.New(), codex.New(), opencode.New(), gemini.New(), acp.New())
}
