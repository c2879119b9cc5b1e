package postgres

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
)

// Channels carry notices: the ids of sessions whose logs have grown, and small new events. Readers of
// logs listen to both. The events of turns have a separate one, because nothing in a worker waits for them,
// and it would be woken by each commit of its turns.
//
// Releases before turnsChannel use only eventsChannel, for all events, and listen to it alone: until
// such an api is replaced, its readers find the events of newer workers when they poll.
const (
	eventsChannel = "overwinter_events"
	turnsChannel  = "overwinter_turns"
)

// maxNotify bounds the bytes of a notification. Postgres accepts fewer than 8000.
const maxNotify = 7900

// maxNotices bounds the notifications of one commit; beyond it, a single "*" is sent.
const maxNotices = 4

// everySession is the payload that names all sessions.
const everySession = "*"

// beforeEvents separates the ids of a payload from its events. Programs that know no events take
// what follows for the ids of sessions that do not exist.
const beforeEvents = ",,"

// notices returns the payloads that name the sessions: a few full ones, or one that names all. A
// single payload also contains the encoded events of the sessions, while there is room.
func notices(sessionIDs []string, encoded func(sessionID string) []byte) []string {
	var out []string
	var payload strings.Builder
	for _, id := range sessionIDs {
		if payload.Len() > 0 && payload.Len()+1+len(id) > maxNotify {
			out = append(out, payload.String())
			payload.Reset()
		}
		if payload.Len() > 0 {
			payload.WriteByte(',')
		}
		payload.WriteString(id)
	}
	if len(out) == 0 {
		addEvents(&payload, sessionIDs, encoded)
	}
	out = append(out, payload.String())
	if len(out) > maxNotices {
		return []string{everySession}
	}
	return out
}

// addEvents adds the events of sessions that fit into a payload.
func addEvents(payload *strings.Builder, sessionIDs []string, encoded func(sessionID string) []byte) {
	separator := beforeEvents
	for i, id := range sessionIDs {
		events := encoded(id)
		head := strconv.Itoa(i) + " "
		if len(events) == 0 || payload.Len()+len(separator)+len(head)+len(events)+1 > maxNotify {
			continue
		}
		payload.WriteString(separator)
		payload.WriteString(head)
		payload.Write(events)
		payload.WriteByte(';')
		separator = ""
	}
}

// appendEvent encodes an event of a session in a payload: its position, its time in microseconds,
// and its other fields as netstrings (https://cr.yp.to/proto/netstrings.txt, without the final
// comma).
func appendEvent(dst []byte, e *eventlog.Event) []byte {
	dst = append(strconv.AppendInt(dst, e.Seq, 10), ' ')
	dst = append(strconv.AppendInt(dst, e.At.UnixMicro(), 10), ' ')
	for _, field := range []string{e.Type, e.ConversationID, e.RunID} {
		dst = append(strconv.AppendInt(dst, int64(len(field)), 10), ':')
		dst = append(dst, field...)
	}
	dst = append(strconv.AppendInt(dst, int64(len(e.Data)), 10), ':')
	return append(dst, e.Data...)
}

var errNotice = errors.New("a notice of new events is not encoded as expected")

// growths decodes a payload; nil for all sessions. If it returns an error, the sessions have grown,
// but their events must be read.
func growths(payload string) ([]eventlog.Growth, error) {
	if payload == everySession {
		return nil, nil
	}
	ids, encoded, _ := strings.Cut(payload, beforeEvents)
	var out []eventlog.Growth
	for id := range strings.SplitSeq(ids, ",") {
		out = append(out, eventlog.Growth{SessionID: id})
	}
	err := decodeEvents([]byte(encoded), out)
	if err != nil {
		for i := range out {
			out[i].Events = nil
		}
	}
	return out, err
}

func decodeEvents(encoded []byte, out []eventlog.Growth) error {
	d := noticeDecoder{rest: encoded}
	for len(d.rest) > 0 && d.err == nil {
		no := d.number(' ')
		if no < 0 || no >= int64(len(out)) {
			return fmt.Errorf("%w: session %d of %d", errNotice, no, len(out))
		}
		grown := &out[no]
		for d.err == nil && !d.ends() {
			e := eventlog.Event{SessionID: grown.SessionID, Seq: d.number(' '), At: time.UnixMicro(d.number(' ')).UTC()}
			e.Type, e.ConversationID, e.RunID = string(d.field()), string(d.field()), string(d.field())
			e.Data = json.RawMessage(d.field())
			if n := len(grown.Events); n > 0 && e.Seq != grown.Events[n-1].Seq+1 {
				return fmt.Errorf("%w: event %d after event %d", errNotice, e.Seq, grown.Events[n-1].Seq)
			}
			grown.Events = append(grown.Events, e)
		}
	}
	return d.err
}

// noticeDecoder reads the events of a payload. After an error it returns zero values.
type noticeDecoder struct {
	rest []byte
	err  error
}

// number reads a number and the byte that ends it.
func (d *noticeDecoder) number(end byte) int64 {
	digits, rest, ok := bytes.Cut(d.rest, []byte{end})
	n, err := strconv.ParseInt(string(digits), 10, 64)
	if !ok || err != nil {
		d.fail()
		return 0
	}
	d.rest = rest
	return n
}

func (d *noticeDecoder) field() []byte {
	n := d.number(':')
	if d.err != nil || n < 0 || n > int64(len(d.rest)) {
		d.fail()
		return nil
	}
	field := d.rest[:n:n]
	d.rest = d.rest[n:]
	return field
}

// ends reads the end of a session's events, if it is next.
func (d *noticeDecoder) ends() bool {
	if len(d.rest) == 0 {
		d.fail()
		return true
	}
	if d.rest[0] != ';' {
		return false
	}
	d.rest = d.rest[1:]
	return true
}

func (d *noticeDecoder) fail() {
	if d.err == nil {
		d.err = errNotice
	}
	d.rest = nil
}
