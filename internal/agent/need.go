package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/profile"
)

// Need is a secret that an agent can use. A profile's environment may provide it too.
type Need struct {
	Name string `json:"name"`
	// Required is set if the agent cannot work without it or one of Alternatives.
	Required     bool     `json:"required"`
	Alternatives []string `json:"alternatives,omitempty"`
	// Purpose describes the secret if the name does not.
	Purpose string `json:"purpose,omitempty"`
}

// Missing returns the required needs of the description that are satisfied neither by a variable of
// the profile, which may be nil, nor by a secret for which has returns true. A profile that
// configures the agent with one of its files satisfies all needs.
func (d Description) Missing(p *profile.Spec, has func(name string) bool) []Need {
	if p != nil && slices.ContainsFunc(p.Files, profile.File.IsConfiguration) {
		return nil
	}
	satisfied := func(name string) bool { return has(name) || p != nil && p.Environment[name] != "" }
	var missing []Need
	for _, n := range d.Secrets {
		if n.Required && !satisfied(n.Name) && !slices.ContainsFunc(n.Alternatives, satisfied) {
			missing = append(missing, n)
		}
	}
	return missing
}

// MissingText returns a message that the agent with that name lacks the need, and how to satisfy
// it.
func (n Need) MissingText(agentName string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "the agent %s needs %s, which is not stored: store it with PUT /api/secrets/%s, or set it in the environment of a profile",
		agentName, n.Name, n.Name)
	if n.Purpose != "" {
		fmt.Fprintf(&b, " (%s)", n.Purpose)
	}
	if len(n.Alternatives) > 0 {
		fmt.Fprintf(&b, "; instead of it the agent takes %s", strings.Join(n.Alternatives, ", "))
	}
	return b.String()
}

// Optional returns needs without which the agent works.
func Optional(names ...string) []Need {
	needs := make([]Need, len(names))
	for i, name := range names {
		needs[i] = Need{Name: name}
	}
	return needs
}
