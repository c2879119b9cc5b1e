package loopback

import (
	"context"
	"encoding/json"
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

// Suffixes of the variables that contain an agent's model URL.
const (
	baseURLSuffix = "_BASE_URL"       // a URL
	ConfigSuffix  = "_CONFIG_CONTENT" // a JSON document with such URLs under baseURL
)

// Error is a URL on this machine's loopback interface that a sandbox with its own
// network cannot reach.
type Error struct {
	name string // of the variable or field
	port uint16
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s names port %d of this machine's loopback interface, which sandboxes cannot reach; "+
		"start the local Modal with --sandbox-host-ports %d (or OVERWINTER_SANDBOX_HOST_PORTS=%d)", e.name, e.port, e.port, e.port)
}

// FromSandbox returns a URL for use in a sandbox with its own network: a URL on this machine's
// loopback interface gets the sandbox's name for this host, if its port is allowed.
func FromSandbox(network sandbox.Network, name, text string) (string, error) {
	u, parseErr := url.Parse(text)
	if parseErr != nil || !IsHost(u.Hostname()) {
		return text, nil //nolint:nilerr // the user of the variable reports invalid URLs
	}
	port, ok := portOf(u)
	if !ok {
		return text, nil
	}
	if !network.HostPorts.Contains(port) {
		return "", &Error{name: name, port: port}
	}
	u.Host = net.JoinHostPort(network.HostName, strconv.Itoa(int(port)))
	return u.String(), nil
}

// IsHost reports whether a host is the loopback interface.
func IsHost(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && (ip.Unmap().IsLoopback() || ip.IsUnspecified())
}

// portOf returns the port of a URL.
func portOf(u *url.URL) (uint16, bool) {
	if text := u.Port(); text != "" {
		port, err := strconv.ParseUint(text, 10, 16)
		return uint16(port), err == nil && port > 0
	}
	port, ok := map[string]uint16{"http": 80, "https": 443, "git": 9418}[strings.ToLower(u.Scheme)]
	return port, ok
}

// Rewrite replaces loopback URLs in sets of variables, if sandboxes have their own network, which
// network returns; nil means that they share this machine's. network is called only if there are
// such URLs.
func Rewrite(network func() (*sandbox.Network, error), sets ...map[string]string) error {
	if !slices.ContainsFunc(sets, hasLoopback) {
		return nil
	}
	n, err := network()
	if err != nil || n == nil {
		return err
	}
	for _, variables := range sets {
		for _, name := range slices.Sorted(maps.Keys(variables)) {
			text, err := rewritten(name, variables[name], func(text string) (string, error) { return FromSandbox(*n, name, text) })
			if err != nil {
				return err
			}
			variables[name] = text
		}
	}
	return nil
}

// hasLoopback reports whether the variables contain a loopback URL.
func hasLoopback(variables map[string]string) (found bool) {
	for name, value := range variables {
		_, _ = rewritten(name, value, func(text string) (string, error) {
			u, err := url.Parse(text)
			found = found || err == nil && IsHost(u.Hostname())
			return text, nil
		})
	}
	return found
}

// URL is a loopback URL in the variables of an agent.
type URL struct {
	Variable string
	Address  string // host and port
	Port     uint16
}

// URLs returns the loopback URLs in the variables, in the order of their names. A sandbox with its
// own network reaches them only if their ports are open to sandboxes.
func URLs(variables map[string]string) []URL {
	var found []URL
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		_, _ = rewritten(name, variables[name], func(text string) (string, error) {
			u, err := url.Parse(text)
			if err != nil || !IsHost(u.Hostname()) {
				return text, nil //nolint:nilerr // the user of the variable reports invalid URLs
			}
			if port, ok := portOf(u); ok {
				found = append(found, URL{Variable: name, Address: net.JoinHostPort(u.Hostname(), strconv.Itoa(int(port))), Port: port})
			}
			return text, nil
		})
	}
	return found
}

// rewritten returns the value of a variable with each of its URLs replaced by the result of
// rewrite. Without a replacement, the value is returned unchanged, byte for byte.
func rewritten(name, value string, rewrite func(string) (string, error)) (string, error) {
	switch {
	case strings.HasSuffix(name, baseURLSuffix):
		return rewrite(value)
	case !strings.HasSuffix(name, ConfigSuffix):
		return value, nil
	}
	var document any
	decoder := json.NewDecoder(strings.NewReader(value))
	decoder.UseNumber()
	if decoder.Decode(&document) != nil {
		return value, nil //nolint:nilerr // the agent reports invalid JSON
	}
	changed := false
	err := EachBaseURL(document, func(text string) (string, error) {
		other, err := rewrite(text)
		changed = changed || other != text
		return other, err
	})
	if err != nil || !changed {
		return value, err
	}
	raw, err := json.Marshal(document)
	return string(raw), err
}

// EachBaseURL replaces the values of baseURL in a JSON document. Other URLs may be of servers in
// the sandbox.
func EachBaseURL(document any, replace func(string) (string, error)) error {
	switch d := document.(type) {
	case []any:
		for _, element := range d {
			if err := EachBaseURL(element, replace); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(d)) {
			text, isText := d[key].(string)
			if !isText || !strings.EqualFold(strings.ReplaceAll(key, "_", ""), "baseurl") {
				if err := EachBaseURL(d[key], replace); err != nil {
					return err
				}
				continue
			}
			other, err := replace(text)
			if err != nil {
				return err
			}
			d[key] = other
		}
	}
	return nil
}

// NetworkOf returns the network of sandboxes, nil if it is this machine's.
func NetworkOf(ctx context.Context, provider *sandbox.Provider) (*sandbox.Network, error) {
	n, err := provider.Network(ctx)
	if sandbox.CodeOf(err) == sandbox.Unsupported {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &n, nil
}
