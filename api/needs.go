package api

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// needStore reports which needs of agents are stored.
type needStore interface {
	// SecretsPresent returns the names, among the given ones, under which a secret is stored.
	SecretsPresent(ctx context.Context, names []string) ([]string, error)
	// SessionNeeds returns the agent of a session, the reference to its profile, if any, and the
	// given names that are names of stored secrets. Error: session_not_found.
	SessionNeeds(ctx context.Context, sessionID string, names []string) (agentName, profileRef string, present []string, err error)
	ProfileGet(ctx context.Context, idOrName string, version int64) (profile.Profile, error)
	PromptGet(ctx context.Context, sessionID, promptID string) (session.Prompt, error)
}

// described returns the description of the agent with that name, and false if there is none.
func (s *Server) described(name string) (agent.Description, bool) {
	all := s.cfg.Agents.Describe()
	if i := slices.IndexFunc(all, func(d agent.Description) bool { return d.Name == name }); i >= 0 {
		return all[i], true
	}
	return agent.Description{}, false
}

// missing returns the missing secrets that the named agent requires. The profile may be nil.
func (s *Server) missing(ctx context.Context, store needStore, agentName string, p *profile.Spec) ([]agent.Need, error) {
	d, ok := s.described(agentName)
	if !ok {
		return nil, nil
	}
	var names []string
	for _, n := range d.Missing(p, func(string) bool { return false }) {
		names = append(append(names, n.Name), n.Alternatives...)
	}
	if len(names) == 0 {
		return nil, nil
	}
	present, err := store.SecretsPresent(ctx, names)
	if err != nil {
		return nil, err
	}
	return d.Missing(p, among(present)), nil
}

// required returns the names of the secrets that agents require, with their alternatives.
func (s *Server) required() []string {
	var names []string
	for _, d := range s.cfg.Agents.Describe() {
		for _, n := range d.Secrets {
			if n.Required {
				names = append(append(names, n.Name), n.Alternatives...)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// usable returns the names of the stored secrets that a session can use: the secrets of its agent,
// and the secret of its repository's host.
func (s *Server) usable(ctx context.Context, store needStore, sess session.Session) ([]string, error) {
	var names []string
	d, _ := s.described(sess.Agent) // an agent without a description needs no secrets
	for _, n := range d.Secrets {
		names = append(append(names, n.Name), n.Alternatives...)
	}
	if sess.Workspace != nil {
		if u, err := url.Parse(sess.Workspace.RepoURL); err == nil && u.Host != "" {
			names = append(names, secret.GitName(strings.ToLower(u.Host)))
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	slices.Sort(names)
	return store.SecretsPresent(ctx, slices.Compact(names))
}

// absent returns the sorted names of secrets that are not stored: secrets that an agent needs, and
// secrets that it had in another installation.
func absent(ctx context.Context, store needStore, missing []agent.Need, had []string) ([]string, error) {
	var names []string
	for _, n := range missing {
		names = append(names, n.Name)
	}
	had = slices.DeleteFunc(slices.Clone(had), func(name string) bool { return !secret.ValidName(name) })
	present, err := store.SecretsPresent(ctx, had)
	for _, name := range had {
		if !slices.Contains(present, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// among returns whether a name is one of the given ones.
func among(names []string) func(name string) bool {
	return func(name string) bool { return slices.Contains(names, name) }
}

// met reports whether the secrets that the named agent requires are present. A profile may remove a need,
// but not one that is met.
func (s *Server) met(agentName string, present []string) bool {
	d, ok := s.described(agentName)
	return !ok || len(d.Missing(nil, among(present))) == 0
}

// promptable refuses a prompt whose agent lacks a required secret, before a sandbox is created for
// the prompt. It accepts a prompt that is already stored.
func (s *Server) promptable(ctx context.Context, store needStore, prompt session.Prompt) error {
	agentName, ref, present, err := store.SessionNeeds(ctx, prompt.SessionID, s.required())
	if err != nil {
		return err
	}
	if s.met(agentName, present) {
		return nil
	}
	d, _ := s.described(agentName) // otherwise it has no needs
	var spec *profile.Spec
	if ref != "" {
		name, version, err := profile.ParseRef(ref)
		if err != nil {
			return err
		}
		p, err := store.ProfileGet(ctx, name, version)
		if err != nil {
			return err
		}
		spec = &p.Spec
	}
	missing := d.Missing(spec, among(present))
	if len(missing) == 0 {
		return nil
	}
	if _, err := store.PromptGet(ctx, prompt.SessionID, prompt.ID); failure.CodeOf(err) != failure.NoPrompt {
		return err
	}
	return secretMissing(missing, agentName)
}

func secretMissing(missing []agent.Need, agentName string) error {
	return failure.Errorf(failure.SecretMissing, "%s", missing[0].MissingText(agentName))
}
