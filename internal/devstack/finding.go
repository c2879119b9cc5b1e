package devstack

import "fmt"

// Verdict is what a look at one thing of the machine comes to.
type Verdict string

// The verdicts, best first.
const (
	// OK needs nothing.
	OK Verdict = "ok"
	// Warning works, with a drawback that Detail names.
	Warning Verdict = "warning"
	// Missing keeps `overwinter dev` from starting, or from working.
	Missing Verdict = "missing"
)

// Finding is what was seen of one thing that the stack needs.
type Finding struct {
	// Check names the thing: "Postgres", "disk".
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	// Detail is what was seen, in one line.
	Detail string `json:"detail"`
	// Remedies are commands, flags or steps that help, best first; none when there is nothing to do.
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
