package durablestream

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// controlData follows every event with messages.
type controlData struct {
	NextOffset string `json:"streamNextOffset"`
	Cursor     string `json:"streamCursor,omitempty"`
	UpToDate   bool   `json:"upToDate,omitempty"`
	Closed     bool   `json:"streamClosed,omitempty"`
}

// events streams the log until it is closed or the client has to reconnect. The context first
// bounds its first read.
func (a *answer) events(ctx, first context.Context) error {
	b, err := a.reader.Next(first)
	if err != nil {
		return err
	}
	header := a.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-cache, no-store")
	header.Set("X-Accel-Buffering", "no")
	encoding := encodingOf(a.stream.ContentType)
	if encoding == encodeBinary {
		header.Set(headerEncoding, "base64")
	}
	if err := a.control.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("lift read deadline: %w", err)
	}
	a.w.WriteHeader(http.StatusOK)
	end := time.Now().Add(a.handler.Lifetime)
	cursor, caughtUp := nextCursor(a.asked.cursor, time.Now()), false
	for {
		var out []byte
		if len(b.Messages) > 0 {
			content := body{encoding: encoding}
			content.add(b.Messages)
			out = appendEvent(out, "data", content.eventData())
			caughtUp = false
		}
		caughtUp = caughtUp || b.CaughtUp
		control := controlData{NextOffset: Offset(b.Last), UpToDate: caughtUp, Closed: b.Closed}
		if !b.Closed {
			cursor = max(cursor, currentCursor(time.Now()))
			control.Cursor = strconv.FormatInt(cursor, 10)
		}
		encoded, err := json.Marshal(control)
		if err != nil {
			return err
		}
		out = appendEvent(out, "control", encoded)
		if err := writeTimed(a.w, a.control, out, a.handler.WriteTimeout); err != nil {
			return err
		}
		if err := a.control.Flush(); err != nil {
			return err
		}
		if b.Closed || !time.Now().Before(end) {
			return nil
		}
		if b, err = a.reader.Next(ctx); err != nil {
			return err
		}
	}
}

// pieceBytes is the number of bytes written with one deadline.
const pieceBytes = 32 << 10

// writeTimed writes in pieces, each within its own time.
func writeTimed(w http.ResponseWriter, control *http.ResponseController, content []byte, timeout time.Duration) error {
	for len(content) > 0 {
		if err := control.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
			return fmt.Errorf("set write deadline: %w", err)
		}
		n, err := w.Write(content[:min(len(content), pieceBytes)])
		if err != nil {
			return err
		}
		content = content[n:]
	}
	return nil
}
