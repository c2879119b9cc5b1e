package api

import (
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/agent"
)

// agents are the routes of agents.
type agents struct {
	*Server
	store needStore
}

// agentJSON is an agent as clients see it.
type agentJSON struct {
	agent.Description
	Secrets []needJSON `json:"secrets"`
}

// needJSON is a secret that an agent can use, and whether it is stored.
type needJSON struct {
	agent.Need
	Present bool `json:"present"`
}

func (s *agents) agentList(c echo.Context) error {
	agents := s.cfg.Agents.Describe()
	var names []string
	for _, a := range agents {
		for _, n := range a.Secrets {
			names = append(names, n.Name)
		}
	}
	present, err := s.store.SecretsPresent(c.Request().Context(), names)
	if err != nil {
		return err
	}
	items := make([]agentJSON, len(agents))
	for i, a := range agents {
		items[i] = agentJSON{Description: a, Secrets: []needJSON{}}
		if a.Models == nil {
			items[i].Models = []string{}
		}
		if a.Capabilities == nil {
			items[i].Capabilities = []string{}
		}
		for _, n := range a.Secrets {
			items[i].Secrets = append(items[i].Secrets, needJSON{Need: n, Present: slices.Contains(present, n.Name)})
		}
	}
	return c.JSON(http.StatusOK, newPage(items, ""))
}
