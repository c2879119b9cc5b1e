package devstack

import "fmt"

// Verdict is the result of one check.
type Verdict string

// The verdicts, best first.
const (
	// OK requires no action.
	OK Verdict = "ok"
	// Warning means that the stack works, with a drawback that Detail names.
	Warning Verdict = "warning"
	// Missing prevents `overwinter dev` from starting or working.
	Missing Verdict = "missing"
)

// Finding is the result of checking one requirement of the stack.
type Finding struct {
	// Check names the requirement: "Postgres", "disk".
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	// Detail describes the finding in one line.
	Detail string `json:"detail"`
	// Remedies are commands, flags or steps that help, best first; empty if no action is needed.
	Remedies []string `json:"remedies,omitempty"`
}

func okay(check, format string, args ...any) Finding {
	return Finding{Check: check, Verdict: OK, Detail: fmt.Sprintf(format, args...)}
}

func warning(check, detail string, remedies ...string) Finding {
	return Finding{Check: check, Verdict: Warning, Detail: detail, Remedies: remedies}
}

func missing(check, detail string, remedies ...string) Finding {
	return Finding{Check: check, Verdict: Missing, Detail: detail, Remedies: remedies}
}
