package opencodeformat

import (
	"encoding/json"
	"errors"
)

// Exported is a message with its parts.
type Exported struct {
	Info  Message `json:"info"`
	Parts []Part  `json:"parts"`
}

var errNoInfo = errors.New("an export without a session")

// ExportInfo returns the session of an export, and its number of messages.
func ExportInfo(data []byte) (SessionInfo, int, error) {
	var e struct {
		Info     SessionInfo       `json:"info"`
		Messages []json.RawMessage `json:"messages"`
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return SessionInfo{}, 0, err
	}
	if e.Info.ID == "" {
		return SessionInfo{}, 0, errNoInfo
	}
	return e.Info, len(e.Messages), nil
}
