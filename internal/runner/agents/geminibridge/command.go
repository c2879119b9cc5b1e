package geminibridge

import (
	"encoding/json"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
	"github.com/overwinter-dev/overwinter/internal/lazyregexp"
)

var commandName = lazyregexp.New(`^[A-Za-z0-9_-]{1,64}$`)

// commandPrompt returns the prompt in the file of a command. The file may use any kind of TOML
// string.
func commandPrompt(text string) (string, bool) {
	for rest := text; rest != ""; {
		line, after, _ := strings.Cut(rest, "\n")
		value, ok := strings.CutPrefix(strings.ReplaceAll(line, "prompt=", geminiformat.PromptKey), geminiformat.PromptKey)
		if !ok {
			rest = after
			continue
		}
		for _, mark := range []string{`"""`, `'''`} {
			if body, ok := strings.CutPrefix(strings.TrimSpace(value), mark); ok {
				body, _, ok = strings.Cut(body+"\n"+after, mark)
				return strings.TrimPrefix(body, "\n"), ok
			}
		}
		value = strings.TrimSpace(value)
		if literal, ok := strings.CutPrefix(value, "'"); ok {
			literal, _, ok = strings.Cut(literal, "'")
			return literal, ok
		}
		var s string
		return s, json.Unmarshal([]byte(value), &s) == nil
	}
	return "", false
}
