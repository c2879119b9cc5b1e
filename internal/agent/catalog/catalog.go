// Package catalog is the list of the agents that this build supports: the only place outside its
// own package where an agent is named.
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

// Agents are all agents, in the order in which people see them.
func Agents() *agent.Registry {
	return agent.NewRegistry(demo.New(), claude.New(), codex.New(), opencode.New(), gemini.New(), acp.New())
}
