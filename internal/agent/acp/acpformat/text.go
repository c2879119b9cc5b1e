package acpformat

import (
	"strings"
)

// maxRaw bounds how much is kept of an unparsed line and of a message for people.
const maxRaw = 4 << 10

// Bounded truncates s to at most maxRaw bytes.
func Bounded(s string) string {
	if len(s) <= maxRaw {
		return strings.ToValidUTF8(s, "\ufffd")
	}
	return strings.ToValidUTF8(s[:maxRaw], "") + "…"
}
