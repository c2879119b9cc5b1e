package acpclient

import (
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/agent/acp/acpformat"
)

// outcome is the result of a request for permission.
func outcome(option string) any {
	chosen := map[string]string{"outcome": "cancelled"}
	if option != "" {
		chosen = map[string]string{"outcome": "selected", "optionId": option}
	}
	return map[string]any{"outcome": chosen}
}

// allow is the option that lets a call run, of the list that a request has.
func allow(options json.RawMessage) string {
	var list []acpformat.Option
	acpformat.Decode(options, &list)
	id, _ := acpformat.Choose(list, []string{"allow_once", "allow_always"}, false)
	return id
}
