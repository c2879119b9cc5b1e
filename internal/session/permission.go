package session

// Policy decides about a call of a tool.
type Policy string

// The policies.
const (
	PolicyAllow Policy = "allow" // it runs
	PolicyAsk   Policy = "ask"   // people are asked, if the agent asks at all
	PolicyDeny  Policy = "deny"  // it does not run; the agent gets a rejection
)

// Known reports whether p is one of the policies.
func (p Policy) Known() bool { return p == PolicyAllow || p == PolicyAsk || p == PolicyDeny }

// Permissions say what an agent may do without asking. The zero value allows everything: a sandbox
// is there for that.
type Permissions struct {
	Default Policy `json:"default,omitempty"` // empty means allow
	// Tools are exceptions, by the name under which the agent knows a tool.
	Tools map[string]Policy `json:"tools,omitempty"`
}

// Of is the policy for a tool.
func (p Permissions) Of(tool string) Policy {
	if policy, ok := p.Tools[tool]; ok {
		return policy
	}
	if p.Default == "" {
		return PolicyAllow
	}
	return p.Default
}

// Free reports whether every tool is allowed, so that the agent need not ask at all.
func (p Permissions) Free() bool {
	if p.Of("") != PolicyAllow {
		return false
	}
	for _, policy := range p.Tools {
		if policy != PolicyAllow {
			return false
		}
	}
	return true
}
