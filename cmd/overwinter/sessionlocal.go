package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/catalog"
	"github.com/overwinter-dev/overwinter/internal/portable"
	"github.com/overwinter-dev/overwinter/internal/runner/regular"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// localAgent is an agent whose sessions on this machine can be moved.
type localAgent struct {
	name, title string
	short       string // its name on the command line
	local       agent.Local
}

// localAgents returns all local agents.
func localAgents() ([]localAgent, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, err
	}
	machine := agent.Machine{Home: home, Getenv: os.Getenv, Run: runLocal, Sandbox: agent.Place{Home: portable.Home, Workspace: portable.Workspace}}
	var list []localAgent
	for _, a := range catalog.Agents().All() {
		if movable, ok := a.(agent.Movable); ok {
			short, _, _ := strings.Cut(a.Name(), "-")
			list = append(list, localAgent{a.Name(), a.Describe().Title, short, movable.Local(machine)})
		}
	}
	return list, nil
}

// localAgentOf returns the agent with that name.
func localAgentOf(name string) (localAgent, error) {
	list, err := localAgents()
	if err != nil {
		return localAgent{}, err
	}
	var names []string
	for _, a := range list {
		if a.name == name || a.short == name {
			return a, nil
		}
		names = append(names, a.short)
	}
	if _, err := catalog.Agents().Get(name); err != nil {
		return localAgent{}, usageError{fmt.Sprintf("there is no agent %q; sessions of these agents can be moved: %s", name, strings.Join(names, ", "))}
	}
	return localAgent{}, usageError{fmt.Sprintf(
		"sessions of %s cannot be moved: overwinter does not know where the agent's program stores them on your machine or how it resumes them; sessions of these agents can be moved: %s",
		name, strings.Join(names, ", "))}
}

// programTimeout bounds a command of an agent's own program.
const programTimeout = 5 * time.Minute

// runLocal runs the program of an agent on this machine.
func runLocal(ctx context.Context, dir, program string, args ...string) (out []byte, err error) {
	// A program that exits before a pipe has accepted all of its output loses the rest. A file
	// accepts the output at once.
	f, err := os.CreateTemp("", "overwinter-output-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = f, &stderr
	if err := cmd.Run(); err != nil {
		output := strings.TrimSpace(stderr.String())
		return nil, fmt.Errorf("%s %s: %w %s", program, strings.Join(args, " "), err, terminal.OneLine(output[max(0, len(output)-500):], 0))
	}
	return regular.Read(f.Name(), portable.MaxBytes)
}

// foundLocal is a session on this machine.
type foundLocal struct {
	agent.LocalSession
	agent localAgent
}

// recently is the time after its last write for which an agent is assumed to be running.
const recently = 10 * time.Second

// findLocal finds the session of a directory with the given id, or the newest session if the id is
// empty. It searches the sessions of the named agent, or of all agents if the name is empty.
func findLocal(ctx context.Context, s streams, dir, name, id string) (foundLocal, error) {
	agents, err := localAgents()
	if name != "" {
		var a localAgent
		a, err = localAgentOf(name)
		agents = []localAgent{a}
	}
	if err != nil {
		return foundLocal{}, err
	}
	var all []foundLocal
	var where []string
	for _, a := range agents {
		list, err := a.local.List(ctx, dir)
		if err != nil && name == "" {
			if !errors.Is(err, exec.ErrNotFound) { // otherwise the agent is not installed here
				fmt.Fprintf(s.stderr, "overwinter: could not list the sessions of %s: %s\n", a.title, terminal.OneLine(err.Error(), 0))
			}
			continue
		}
		if err != nil {
			return foundLocal{}, fmt.Errorf("list the sessions of %s: %w", a.title, err)
		}
		for _, one := range list {
			all = append(all, foundLocal{one, a})
		}
		where = append(where, fmt.Sprintf("of %s (looked in %s)", a.title, a.local.Where(dir)))
	}
	slices.SortStableFunc(all, func(a, b foundLocal) int { return b.At.Compare(a.At) })
	if id != "" {
		all = slices.DeleteFunc(all, func(f foundLocal) bool { return f.ID != id })
	}
	if len(all) == 0 {
		what := "no session"
		if id != "" {
			what += " " + id
		}
		return foundLocal{}, fmt.Errorf("%s has %s %s", dir, what, strings.Join(where, ", nor "))
	}
	found := all[0]
	if len(all) > 1 && id == "" {
		fmt.Fprintf(s.stderr, "overwinter: %s has %d sessions; the newest is pushed, another one with --agent and --local-session\n", dir, len(all))
	}
	if time.Since(found.At) < recently {
		fmt.Fprintf(s.stderr, "overwinter: the session was written just now; later changes by %s are not pushed\n", found.agent.title)
	}
	return found, nil
}
