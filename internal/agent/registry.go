package agent

import (
	"fmt"
	"slices"
	"strings"
)

// Registry holds the adapters that this build knows. It does not change after
// NewRegistry and is safe for concurrent use.
type Registry struct {
	adapters []Adapter
}

// NewRegistry returns a registry of adapters. Two with one name panic: that is a
// mistake in wiring, never in input.
func NewRegistry(adapters ...Adapter) *Registry {
	for i, a := range adapters {
		if slices.ContainsFunc(adapters[:i], func(b Adapter) bool { return b.Name() == a.Name() }) {
			panic(fmt.Sprintf("agent: two adapters are named %q", a.Name()))
		}
	}
	return &Registry{adapters: slices.Clone(adapters)}
}

// Get returns the adapter of that name.
func (r *Registry) Get(name string) (Adapter, error) {
	for _, a := range r.adapters {
		if a.Name() == name {
			return a, nil
		}
	}
	return nil, fmt.Errorf("there is no agent %q; there are: %s", name, strings.Join(r.Names(), ", "))
}

// Names are the names of all adapters, in order of registration.
func (r *Registry) Names() []string {
	names := make([]string, len(r.adapters))
	for i, a := range r.adapters {
		names[i] = a.Name()
	}
	return names
}

// All are all adapters, in order of registration.
func (r *Registry) All() []Adapter { return slices.Clone(r.adapters) }

// Describe returns what people may know of every agent.
func (r *Registry) Describe() []Description {
	out := make([]Description, len(r.adapters))
	for i, a := range r.adapters {
		out[i] = a.Describe()
	}
	return out
}
