package acpformat

import (
	"strings"
)

// maxRaw bounds what is kept of lines that are not understood, and of messages for people.
const maxRaw = 4 << 10

// Bounded is at most maxRaw bytes of s.
func Bounded(s string) string {
	if len(s) <= maxRaw {
		return strings.ToValidUTF8(s, "\ufffd")
	}
	return strings.ToValidUTF8(s[:maxRaw], "") + "…"
}
