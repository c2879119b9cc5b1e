package geminiformat

import (
	"strings"
	"unicode"

	"github.com/overwinter-dev/overwinter/internal/lazyregexp"
)

// SubagentTool is the tool that calls subagents.
const SubagentTool = "invoke_agent"

// maxRaw bounds how much is kept of an unparsed line and of a message for people.
const maxRaw = 4 << 10

// ToolName returns the name of the tool from the id of a call, which is <name>__<id> or
// <name>-<ms>-<n>.
func ToolName(id string) string {
	if name, _, ok := strings.Cut(id, "__"); ok && name != "" {
		return name
	}
	if m := madeID.FindStringSubmatch(id); m != nil {
		return m[1]
	}
	return ""
}

var madeID = lazyregexp.New(`^(.+)-\d{10,}-\d+$`)

// IsSpace reports whether JavaScript's trim removes c.
func IsSpace(c rune) bool { return unicode.IsSpace(c) || c == '\ufeff' }

// Bounded truncates s to at most maxRaw bytes.
func Bounded(s string) string {
	if len(s) <= maxRaw {
		return strings.ToValidUTF8(s, "\ufffd")
	}
	return strings.ToValidUTF8(s[:maxRaw], "") + "…"
}
