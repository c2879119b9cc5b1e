package event

import (
	"bytes"
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// TypeSettings reports a change of a session's settings other than its title.
const TypeSettings = "settings"

// SettingsData is the data of a settings event: the complete new values of the changed settings.
type SettingsData struct {
	Metadata    json.RawMessage    `json:"metadata,omitempty"`
	IdleTimeout *resource.Duration `json:"idleTimeout,omitempty"`
	Options     *session.Options   `json:"options,omitempty"`
	Profile     *string            `json:"profile,omitempty"`
	// Workspace is empty, not absent, if it was removed.
	Workspace *session.Workspace `json:"workspace,omitempty"`
}

// Settings returns the event data for a change of settings; false if nothing has changed.
func Settings(before, after session.Session) (data SettingsData, changed bool) {
	if !bytes.Equal(compact(before.Metadata), compact(after.Metadata)) {
		data.Metadata, changed = after.Metadata, true
	}
	if before.IdleTimeout != after.IdleTimeout {
		d := resource.Duration(after.IdleTimeout)
		data.IdleTimeout, changed = &d, true
	}
	if before.Options != after.Options {
		data.Options, changed = &after.Options, true
	}
	if before.Profile != after.Profile {
		data.Profile, changed = &after.Profile, true
	}
	if was, is := orNone(before.Workspace), orNone(after.Workspace); was != is {
		data.Workspace, changed = &is, true
	}
	return data, changed
}

func orNone(ws *session.Workspace) session.Workspace {
	if ws == nil {
		return session.Workspace{}
	}
	return *ws
}

// compact returns a JSON object without white space; an empty input counts as an empty object.
func compact(object json.RawMessage) []byte {
	var out bytes.Buffer
	if len(object) == 0 || json.Compact(&out, object) != nil {
		return []byte("{}")
	}
	return out.Bytes()
}
