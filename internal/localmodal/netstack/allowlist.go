package netstack

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/hostports"
	"github.com/overwinter-dev/overwinter/internal/localmodal/netdevice"
)

// Allowlist lists the destinations that a sandbox may reach. It narrows the policy and never widens
// it: a private range on the list stays refused.
type Allowlist struct {
	Prefixes []netip.Prefix
	// Domains are names; a leading "*." matches all names below one, and "*" every name. The
	// addresses that DNS returns for them are allowed for an hour after the response, including
	// other services at these addresses.
	Domains []string
}

const (
	// maxAllowed bounds each part of an Allowlist.
	maxAllowed = 256
	// allowedLife is how long an address may be reached after DNS returned it for an allowed name.
	allowedLife = time.Hour
)

var domainPattern = regexp.MustCompile(`^\*$|^(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$`)

// ParseAllowlist parses the parts of an Allowlist.
func ParseAllowlist(cidrs, domains []string) (*Allowlist, error) {
	if len(cidrs) > maxAllowed || len(domains) > maxAllowed {
		return nil, fmt.Errorf("an outbound allowlist has at most %d CIDRs and %d domains", maxAllowed, maxAllowed)
	}
	var list Allowlist
	for _, text := range cidrs {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("Invalid CIDR (outbound IPv4): %s", text) //nolint:staticcheck // same message as Modal's
		}
		list.Prefixes = append(list.Prefixes, prefix.Masked())
	}
	for _, text := range domains {
		name := strings.ToLower(strings.TrimSuffix(text, "."))
		if len(name) > 253 || !domainPattern.MatchString(name) || text == "*." {
			return nil, fmt.Errorf("invalid domain (outbound): %q", text)
		}
		if _, err := netip.ParseAddr(name); err == nil {
			return nil, errors.New("an address is not a domain; give it as a CIDR: " + name)
		}
		list.Domains = append(list.Domains, name)
	}
	return &list, nil
}

// domain reports whether the list contains the name.
func (l *Allowlist) domain(name string) bool {
	return slices.ContainsFunc(l.Domains, func(domain string) bool {
		if parent, ok := strings.CutPrefix(domain, "*"); ok {
			return len(name) > len(parent) && strings.HasSuffix(name, parent) // parent is empty for "*"
		}
		return name == domain
	})
}

// resolves reports whether the sandbox may query a name. A query can leak data, so a list of
// domains also restricts queries; a list of only CIDRs does not.
func (l *Allowlist) resolves(name string) bool {
	if l == nil || l.domain(name) {
		return true
	}
	return len(l.Domains) == 0 && len(l.Prefixes) > 0 && name != hostports.Name
}

// allowed are the addresses that DNS returned for allowed names.
type allowed struct {
	mu    sync.Mutex
	until map[netip.Addr]time.Time
}

func (a *allowed) learn(ip netip.Addr, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.until == nil {
		a.until = map[netip.Addr]time.Time{}
	}
	ip = ip.Unmap()
	if _, ok := a.until[ip]; !ok && len(a.until) >= maxNames {
		var oldest netip.Addr
		for other, until := range a.until {
			if !oldest.IsValid() || until.Before(a.until[oldest]) {
				oldest = other
			}
		}
		delete(a.until, oldest)
	}
	a.until[ip] = now.Add(allowedLife)
}

func (a *allowed) has(ip netip.Addr, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return now.Before(a.until[ip.Unmap()])
}

// allows reports whether the sandbox's Allowlist, if any, contains the address.
func (n *Network) allows(ip netip.Addr) bool {
	list := n.config.Allow
	if list == nil {
		return true
	}
	ip = ip.Unmap().WithZone("")
	if ip == netdevice.HostAddress && list.domain(hostports.Name) { // /etc/hosts contains it, so there is no DNS query
		return true
	}
	return slices.ContainsFunc(list.Prefixes, func(p netip.Prefix) bool { return p.Contains(ip) }) || n.allowed.has(ip, time.Now())
}

// allow records addresses of a name, if the list contains the name.
func (n *Network) allow(name string, addresses ...netip.Addr) {
	if n.config.Allow == nil || !n.config.Allow.domain(name) {
		return
	}
	for _, ip := range addresses {
		n.allowed.learn(ip, time.Now())
	}
}
