package lifecycle

import (
	"encoding/json"
	"slices"
)

// Filter selects events. The zero value selects all.
type Filter struct {
	Types     []Type // any of them
	SessionID string
	Agent     string
	Metadata  map[string]string // strings that the session's metadata must all have
}

// All reports whether the filter selects every event.
func (f Filter) All() bool {
	return len(f.Types) == 0 && f.SessionID == "" && f.Agent == "" && len(f.Metadata) == 0
}

// Selects reports whether the filter selects e.
func (f Filter) Selects(e Event) bool {
	if len(f.Types) > 0 && !slices.Contains(f.Types, e.Type) || f.SessionID != "" && f.SessionID != e.Session.ID ||
		f.Agent != "" && f.Agent != e.Session.Agent {
		return false
	}
	if len(f.Metadata) == 0 {
		return true
	}
	var has map[string]any
	if json.Unmarshal(e.Session.Metadata, &has) != nil {
		return false
	}
	for key, want := range f.Metadata {
		if text, ok := has[key].(string); !ok || text != want {
			return false
		}
	}
	return true
}
