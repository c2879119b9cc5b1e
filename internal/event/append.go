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

// appendTime appends t as resource.Time does, and in a fifth of the time: every event that is read has one.
func appendTime(dst []byte, t time.Time) []byte {
	t = t.UTC()
	year, month, day := t.Date()
	if year < 0 || year > 9999 {
		return t.AppendFormat(dst, resource.TimeLayout)
	}
	hour, minute, second := t.Clock()
	dst = appendDigits(dst, year, 4)
	dst = appendDigits(append(dst, '-'), int(month), 2)
	dst = appendDigits(append(dst, '-'), day, 2)
	dst = appendDigits(append(dst, 'T'), hour, 2)
	dst = appendDigits(append(dst, ':'), minute, 2)
	dst = appendDigits(append(dst, ':'), second, 2)
	dst = appendDigits(append(dst, '.'), t.Nanosecond()/int(time.Millisecond), 3)
	return append(dst, 'Z')
}

// appendDigits appends a number with leading zeros.
func appendDigits(dst []byte, n, digits int) []byte {
	dst = append(dst, "0000"[:digits]...)
	for i := len(dst) - 1; n > 0; i-- {
		dst[i] = byte('0' + n%10)
		n /= 10
	}
	return dst
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
