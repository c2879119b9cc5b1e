package permission

// Policy is the decision about a tool call.
type Policy string

// The policies.
const (
	Allow Policy = "allow" // it runs
	Ask   Policy = "ask"   // people are asked, if the agent asks at all
	Deny  Policy = "deny"  // it does not run; the agent gets a rejection
)

// Known reports whether p is one of the policies.
func (p Policy) Known() bool { return p == Allow || p == Ask || p == Deny }

// Rules are the permissions of an agent. The zero value allows everything, because the sandbox is
// the boundary.
type Rules struct {
	Default Policy `json:"default,omitempty"` // empty means allow
	// Tools are exceptions, by the agent's name of the tool.
	Tools map[string]Policy `json:"tools,omitempty"`
}

// Of returns the policy for a tool.
func (r Rules) Of(tool string) Policy {
	if policy, ok := r.Tools[tool]; ok {
		return policy
	}
	if r.Default == "" {
		return Allow
	}
	return r.Default
}

// Free reports whether every tool is allowed, so that the agent need not ask at all.
func (r Rules) Free() bool {
	if r.Of("") != Allow {
		return false
	}
	for _, policy := range r.Tools {
		if policy != Allow {
			return false
		}
	}
	return true
}
