package acpclient

import (
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/agent/acp/acpformat"
)

// outcome returns the result for a permission request.
func outcome(option string) any {
	chosen := map[string]string{"outcome": "cancelled"}
	if option != "" {
		chosen = map[string]string{"outcome": "selected", "optionId": option}
	}
	return map[string]any{"outcome": chosen}
}

// allow returns the option, from those of a request, that allows the call.
func allow(options json.RawMessage) string {
	var list []acpformat.Option
	acpformat.Decode(options, &list)
	id, _ := acpformat.Choose(list, []string{"allow_once", "allow_always"}, false)
	return id
}
