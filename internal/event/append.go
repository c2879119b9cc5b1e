package event

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/resource"
)

// AppendHead appends the JSON of FromLog(*e) up to its data. The data and a closing brace complete it.
func AppendHead(dst []byte, e *eventlog.Event) []byte {
	dst = append(dst, `{"seq":`...)
	dst = strconv.AppendInt(dst, e.Seq, 10)
	dst = append(dst, `,"type":`...)
	dst = appendString(dst, e.Type)
	dst = append(dst, `,"sessionId":`...)
	dst = appendString(dst, e.SessionID)
	if e.ConversationID != "" {
		dst = append(dst, `,"conversationId":`...)
		dst = appendString(dst, e.ConversationID)
	}
	if e.RunID != "" {
		dst = append(dst, `,"runId":`...)
		dst = appendString(dst, e.RunID)
	}
	dst = append(dst, `,"at":"`...)
	dst = appendTime(dst, e.At)
	return append(dst, `","data":`...)
}

// appendTime appends t as resource.Time does.
func appendTime(dst []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(dst, resource.TimeLayout)
}

// appendString appends a JSON string.
func appendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, err := json.Marshal(s)
			if err != nil {
				panic(err) // a string always marshals
			}
			return append(dst, quoted...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}
