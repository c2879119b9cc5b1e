package postgres

import (
	"encoding/binary"
	"encoding/json"
	"time"

	"github.com/overwinter-dev/overwinter/internal/eventlog"
	"github.com/overwinter-dev/overwinter/internal/failure"
)

// packedEvents are consecutive events in one row of eventsRead. Each has 16 bytes: 8 with numbers and lengths, which
// are together before all times, and 8 with its time. Integers are big-endian.
//
//	63           32 31              15 14          9 8           0
//	number of the   number of its      length of     length of
//	run             conversation       its type      its data
//
// The data of a large event, whose length is shown as largeData, is in a separate row. A page with an event that does not
// fit has a row per event instead. The bounds are in eventsRead: they also limit what Postgres concatenates before it
// knows the size of a page.
type packedEvents struct {
	first int64  // seq of the first event
	fixed []byte // numbers, then times in microseconds since postgresEpoch
	types []byte // one after the other, as the data
	data  []byte // of events that are not large
	large []largeEvent
}

// largeEvent is the data of an event that precedes the packed ones.
type largeEvent struct {
	seq  int64
	data []byte
}

const (
	// largeData is the length that stands for all lengths from it on.
	largeData = 1<<9 - 1
	// postgresEpoch is the zero of times in the binary format of Postgres, in Unix time.
	postgresEpoch = 946_684_800
)

// errPacked means that the lengths of packed events do not add up to what the rows contain.
var errPacked = &failure.Error{Code: failure.Internal, Message: "the packed events of a page have other lengths than their rows"}

// addTo adds the events to a page. Their ids are those of names.
func (p packedEvents) addTo(page *eventlog.Page, names *pageNames) error {
	n := len(p.fixed) / 16
	if len(p.fixed) != 16*n {
		return errPacked
	}
	numbers, times := p.fixed[:8*n], p.fixed[8*n:]
	e := eventlog.Event{SessionID: page.SessionID}
	for i := range n {
		e.Seq = p.first + int64(i)
		number := binary.BigEndian.Uint64(numbers[8*i:])
		inType, inData := int(number>>9&63), int(number&largeData)
		if inType > len(p.types) {
			return errPacked
		}
		e.Type, p.types = reuse(e.Type, p.types[:inType]), p.types[inType:]
		switch {
		case inData == largeData && len(p.large) > 0 && p.large[0].seq == e.Seq:
			e.Data, p.large = json.RawMessage(p.large[0].data), p.large[1:]
		case inData < largeData && inData <= len(p.data):
			e.Data, p.data = json.RawMessage(p.data[:inData]), p.data[inData:]
		default:
			return errPacked
		}
		micros := int64(binary.BigEndian.Uint64(times[8*i:]))
		e.At = time.Unix(postgresEpoch+micros/1e6, micros%1e6*1e3).UTC()
		e.ConversationID, e.RunID = names.conversations.id(int32(number>>15&(1<<17-1))), names.runs.id(int32(number>>32))
		page.Add(&e)
	}
	if len(p.types)+len(p.data)+len(p.large) > 0 {
		return errPacked
	}
	return nil
}
