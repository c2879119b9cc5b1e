package devstack

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"
)

// addresses has the addresses of a running stack. Parts that it does not run are empty.
type addresses struct {
	api        string // URL
	worker     string // URL of its health and metrics
	temporalUI string // URL
	temporal   string // host:port
	postgres   string // host:port
	localModal string // URL
	dataDir    string
	logDir     string
	sandbox    sandboxInfo
	// sharedNetwork is set if sandboxes use this machine's network.
	sharedNetwork bool
	took          time.Duration
}

// banner lists the addresses and the next steps.
func (a addresses) banner() string {
	var b strings.Builder
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "  %-12s %s\n", name, value)
		}
	}
	fmt.Fprintf(&b, "\noverwinter is ready (%.1f s)\n\n", a.took.Seconds())
	row("API", a.api)
	row("Temporal UI", a.temporalUI)
	row("Temporal", a.temporal)
	row("Postgres", a.postgres)
	row("Local Modal", a.localModal)
	row("Sandboxes", a.sandboxes())
	row("Metrics", a.api+"/metrics, "+a.worker+"/metrics")
	row("Data", a.dataDir)
	row("Logs", a.logDir)
	fmt.Fprintf(&b, "\nCreate a session with a first prompt:\n\n"+
		"  curl -s %s/api/sessions -H 'Content-Type: application/json' \\\n"+
		"    -d '{\"agent\": \"demo\", \"prompt\": {\"content\": \"write hello.txt: hello\"}}'\n\n"+
		"Ctrl-C puts the sessions to sleep and stops everything; state is kept.\n\n", a.api)
	return b.String()
}

// sandboxes describes the provider and the isolation of sandboxes.
func (a addresses) sandboxes() string {
	var parts []string
	if a.sandbox.Driver != "" {
		parts = append(parts, a.sandbox.Driver)
	}
	if a.sandbox.Isolation != "" {
		parts = append(parts, "isolation: "+a.sandbox.Isolation)
	}
	if a.localModal != "" {
		parts = append(parts, "on this machine")
		if a.sharedNetwork || a.sandbox.Isolation == "chroot" || a.sandbox.Isolation == "directory" {
			parts = append(parts, "sharing its network")
		}
	}
	return strings.Join(parts, ", ")
}

// baseURL returns the URL of a listener for clients on this machine.
func baseURL(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "http://" + address
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = loopback
	}
	return "http://" + net.JoinHostPort(host, port)
}
