package event

import (
	"bytes"
	"encoding/json"

	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// TypeSettings is of a change of a session's settings, other than its title.
const TypeSettings = "settings"

// SettingsData is the data of a settings event: the new values of what has changed, each as a whole.
type SettingsData struct {
	Metadata    json.RawMessage    `json:"metadata,omitempty"`
	IdleTimeout *resource.Duration `json:"idleTimeout,omitempty"`
	Options     *session.Options   `json:"options,omitempty"`
	Profile     *string            `json:"profile,omitempty"`
	// Workspace is empty, not absent, if the session has none any more.
	Workspace *session.Workspace `json:"workspace,omitempty"`
}

// Settings describes what a change of settings has changed; false if that is nothing.
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

// compact is a JSON object without white space; nothing counts as an empty one.
func compact(object json.RawMessage) []byte {
	var out bytes.Buffer
	if len(object) == 0 || json.Compact(&out, object) != nil {
		return []byte("{}")
	}
	return out.Bytes()
}
