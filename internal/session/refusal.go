package session

// Refusal counts the connections to one destination that the network of a sandbox
// refused.
type Refusal struct {
	Host     string // the name that the sandbox resolved; may be empty
	IP       string // empty if there were too many destinations to count each
	Port     uint16
	Protocol string // tcp, udp
	Verdict  string // refused, limited
	Count    int
}
