package activities

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/sandbox"
)

// baseURLSuffix ends the names of the variables that say where an agent's model is
// served.
const baseURLSuffix = "_BASE_URL"

// loopbackError is a URL on this machine's loopback interface that a sandbox with its own
// network cannot reach.
type loopbackError struct {
	name string // of the variable or field
	port uint16
}

func (e *loopbackError) Error() string {
	return fmt.Sprintf("%s names port %d of this machine's loopback interface, which sandboxes cannot reach; "+
		"start the local Modal with --sandbox-host-ports %d (or OVERWINTER_SANDBOX_HOST_PORTS=%d)", e.name, e.port, e.port, e.port)
}

// fromSandbox returns how a sandbox with its own network reaches a URL: one on this
// machine's loopback interface leads to the host's name there, if its port is allowed.
func fromSandbox(network sandbox.Network, name, text string) (string, error) {
	u, parseErr := url.Parse(text)
	if parseErr != nil || !isLoopback(u.Hostname()) {
		return text, nil //nolint:nilerr // what is no URL is for its user to judge
	}
	port, ok := portOf(u)
	if !ok {
		return text, nil
	}
	if !network.HostPorts.Contains(port) {
		return "", &loopbackError{name: name, port: port}
	}
	u.Host = net.JoinHostPort(network.HostName, strconv.Itoa(int(port)))
	return u.String(), nil
}

func isLoopback(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && (ip.Unmap().IsLoopback() || ip.IsUnspecified())
}

// portOf is the port that a URL leads to.
func portOf(u *url.URL) (uint16, bool) {
	if text := u.Port(); text != "" {
		port, err := strconv.ParseUint(text, 10, 16)
		return uint16(port), err == nil && port > 0
	}
	port, ok := map[string]uint16{"http": 80, "https": 443, "git": 9418}[strings.ToLower(u.Scheme)]
	return port, ok
}

// network returns the network of sandboxes, nil if it is this machine's.
func (w *work) network(ctx context.Context) (*sandbox.Network, error) {
	n, err := w.Sandbox.Network(ctx)
	if sandbox.CodeOf(err) == sandbox.Unsupported {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &n, nil
}

// reachable rewrites the base URLs among variables that lead to this machine.
func (w *work) reachable(ctx context.Context, sets ...map[string]string) error {
	if !slices.ContainsFunc(sets, hasLoopback) {
		return nil
	}
	n, err := w.network(ctx)
	if err != nil || n == nil {
		return err
	}
	for _, variables := range sets {
		for _, name := range slices.Sorted(maps.Keys(variables)) {
			if !strings.HasSuffix(name, baseURLSuffix) {
				continue
			}
			text, err := fromSandbox(*n, name, variables[name])
			if err != nil {
				return final(Refused, err)
			}
			variables[name] = text
		}
	}
	return nil
}

// hasLoopback reports whether a base URL among the variables leads to this machine.
func hasLoopback(variables map[string]string) bool {
	for name, value := range variables {
		if u, err := url.Parse(value); err == nil && strings.HasSuffix(name, baseURLSuffix) && isLoopback(u.Hostname()) {
			return true
		}
	}
	return false
}
