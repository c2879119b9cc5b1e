// Package hostports has the set of ports of this machine's loopback interface that sandboxes may
// reach.
package hostports

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Name is the host name under which a sandbox reaches this machine's loopback
// interface, on the ports of a Set.
const Name = "host.overwinter.internal"

// maxRanges bounds a set.
const maxRanges = 100

// Set is a set of ports. The zero value is empty.
type Set struct{ ranges []portRange }

type portRange struct{ first, last uint16 }

// Parse parses ports and ranges of ports, separated by commas, such as "8901,11434" or "8000-8099".
// The empty string is the empty set.
func Parse(text string) (Set, error) {
	if strings.TrimSpace(text) == "" {
		return Set{}, nil
	}
	var s Set
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			last = first
		}
		from, err := port(first)
		if err != nil {
			return Set{}, err
		}
		to, err := port(last)
		if err != nil {
			return Set{}, err
		}
		if to < from {
			return Set{}, fmt.Errorf("invalid port range %q: the first port is greater than the last", part)
		}
		if len(s.ranges) == maxRanges {
			return Set{}, fmt.Errorf("too many ports: at most %d ports and ranges are allowed", maxRanges)
		}
		s.ranges = append(s.ranges, portRange{from, to})
	}
	return s, nil
}

func port(text string) (uint16, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("invalid port %q: must be a number from 1 to %d", text, math.MaxUint16)
	}
	return uint16(n), nil
}

// Contains reports whether the port is in the set.
func (s Set) Contains(port uint16) bool {
	return slices.ContainsFunc(s.ranges, func(r portRange) bool { return r.first <= port && port <= r.last })
}

// First returns the first ports of the set, at most n, in the order in which they were listed. A
// range that does not fit is skipped.
func (s Set) First(n int) []uint16 {
	var ports []uint16
	for _, r := range s.ranges {
		if len(ports)+int(r.last-r.first)+1 > n {
			continue
		}
		for port := int(r.first); port <= int(r.last); port++ {
			if !slices.Contains(ports, uint16(port)) {
				ports = append(ports, uint16(port))
			}
		}
	}
	return ports
}

// String returns the set in the syntax of Parse.
func (s Set) String() string {
	parts := make([]string, 0, len(s.ranges))
	for _, r := range s.ranges {
		if r.first == r.last {
			parts = append(parts, strconv.Itoa(int(r.first)))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", r.first, r.last))
		}
	}
	return strings.Join(parts, ",")
}
