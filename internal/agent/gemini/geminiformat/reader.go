package geminiformat

import (
	"strings"
	"unicode"

	"github.com/overwinter-dev/overwinter/internal/lazyregexp"
)

// SubagentTool is the tool that calls subagents.
const SubagentTool = "invoke_agent"

// maxRaw bounds what is kept of lines that are not understood, and of messages for people.
const maxRaw = 4 << 10

// ToolName is the name of the tool in the id of a call, which is <name>__<id>, or <name>-<ms>-<n>.
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

// IsSpace is what JavaScript trims.
func IsSpace(c rune) bool { return unicode.IsSpace(c) || c == '\ufeff' }

// Bounded is at most maxRaw bytes of s.
func Bounded(s string) string {
	if len(s) <= maxRaw {
		return strings.ToValidUTF8(s, "\ufffd")
	}
	return strings.ToValidUTF8(s[:maxRaw], "") + "…"
}
