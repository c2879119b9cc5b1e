package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// agentCmd shows the agents of the API.
type agentCmd struct {
	apiFlags
	List agentListCmd `cmd:"" help:"List the agents and the secrets that each one is missing."`
	Show agentShowCmd `cmd:"" help:"Show one agent."`
}

// agentListCmd lists agents.
type agentListCmd struct{}

// Run prints one line for each agent.
func (agentListCmd) Run(ctx context.Context, s streams, parent *agentCmd) error {
	return parent.with(func(api *client.Client) error {
		page, err := api.AgentList(ctx)
		if err != nil {
			return err
		}
		if parent.json() {
			return printJSON(s.stdout, page)
		}
		t := tabwriter.NewWriter(s.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "NAME\tTITLE\tMISSING SECRETS") // Flush returns the error
		for _, raw := range page.Items {
			a, err := agentOf(raw)
			if err != nil {
				return err
			}
			fmt.Fprintf(t, "%s\t%s\t%s\n", terminal.OneLine(a.Name, terminal.TitleRunes), terminal.OneLine(a.Title, terminal.TitleRunes), strings.Join(a.missing(), ", "))
		}
		return t.Flush()
	})
}

// agentShowCmd shows one agent.
type agentShowCmd struct {
	Name string `arg:"" help:"Name of the agent."`
}

// Run prints the API's description of the agent.
func (c *agentShowCmd) Run(ctx context.Context, s streams, parent *agentCmd) error {
	return parent.with(func(api *client.Client) error {
		page, err := api.AgentList(ctx)
		if err != nil {
			return err
		}
		var names []string
		for _, raw := range page.Items {
			a, err := agentOf(raw)
			if err != nil {
				return err
			}
			if a.Name != c.Name {
				names = append(names, a.Name)
				continue
			}
			if parent.json() {
				return printJSON(s.stdout, raw)
			}
			return a.print(s)
		}
		return fmt.Errorf("there is no agent %s; the agents are: %s", c.Name, strings.Join(names, ", "))
	})
}

// shownAgent is the printed form of an agent.
type shownAgent struct {
	Name         string   `json:"name"`
	Title        string   `json:"title"`
	Summary      string   `json:"summary"`
	Version      string   `json:"version"`
	Models       []string `json:"models"`
	Capabilities []string `json:"capabilities"`
	Secrets      []struct {
		Name         string   `json:"name"`
		Required     bool     `json:"required"`
		Present      bool     `json:"present"`
		Alternatives []string `json:"alternatives"`
	} `json:"secrets"`
}

func agentOf(raw json.RawMessage) (a shownAgent, err error) {
	if err := json.Unmarshal(raw, &a); err != nil {
		return a, fmt.Errorf("read agent: %w", err)
	}
	return a, nil
}

// missing returns the required secrets for which neither the secret nor an alternative is stored.
func (a shownAgent) missing() []string {
	present := map[string]bool{}
	for _, s := range a.Secrets {
		present[s.Name] = s.Present
	}
	var names []string
	for _, s := range a.Secrets {
		if s.Required && !s.Present && !slices.ContainsFunc(s.Alternatives, func(name string) bool { return present[name] }) {
			names = append(names, strings.Join(append([]string{s.Name}, s.Alternatives...), " or "))
		}
	}
	return names
}

func (a shownAgent) print(s streams) error {
	t := tabwriter.NewWriter(s.stdout, 0, 0, 2, ' ', 0)
	row := func(name, text string) {
		if text != "" {
			fmt.Fprintf(t, "%s\t%s\n", name, terminal.OneLine(text, 0)) // Flush returns the error
		}
	}
	row("name", a.Name)
	row("title", a.Title)
	row("summary", a.Summary)
	row("version", a.Version)
	row("models", strings.Join(a.Models, ", "))
	row("capabilities", strings.Join(a.Capabilities, ", "))
	for _, one := range a.Secrets {
		state := "not stored"
		if one.Present {
			state = "stored"
		}
		if one.Required {
			state += ", required"
		}
		if len(one.Alternatives) > 0 {
			state += ", or " + strings.Join(one.Alternatives, ", ")
		}
		row("secret", one.Name+inBrackets(state))
	}
	return t.Flush()
}
