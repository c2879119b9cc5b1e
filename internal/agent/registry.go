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

// NewRegistry returns a registry of adapters. It panics if two have the same name, which is a
// programming error.
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

// Names returns the names of all adapters, in order of registration.
func (r *Registry) Names() []string {
	names := make([]string, len(r.adapters))
	for i, a := range r.adapters {
		names[i] = a.Name()
	}
	return names
}

// All returns all adapters, in order of registration.
func (r *Registry) All() []Adapter { return slices.Clone(r.adapters) }

// Describe returns the public descriptions of all agents.
func (r *Registry) Describe() []Description {
	out := make([]Description, len(r.adapters))
	for i, a := range r.adapters {
		out[i] = a.Describe()
	}
	return out
}
