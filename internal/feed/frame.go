package feed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"strconv"

	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/eventlog"
)

const (
	dataField  = "\ndata: "
	frameBreak = "\n\n"
)

// Format is the format that a feed requires of its log: server-sent events, because most readers
// forward them unchanged.
func Format() eventlog.Format {
	return eventlog.Format{
		Head: func(dst []byte, e *eventlog.Event) []byte {
			dst = append(dst, "id: "...)
			dst = strconv.AppendInt(dst, e.Seq, 10)
			dst = append(dst, "\nevent: "...)
			dst = append(dst, e.Type...)
			dst = append(dst, dataField...)
			return event.AppendHead(dst, e)
		},
		Tail: "}" + frameBreak,
		Mark: isFinal,
	}
}

// isFinal reports whether a session is final after an event.
func isFinal(e *eventlog.Event) bool {
	var data event.StatusData
	return e.Type == event.TypeStatus && json.Unmarshal(e.Data, &data) == nil && data.Status.Final()
}

// Events iterates over the events of a batch in the form of [Format]: the seq and the JSON of each,
// on one line, like in the data of a server-sent event. The bytes belong to the batch: they must
// not be modified, and they are valid as long as the batch is.
func Events(b eventlog.Batch) iter.Seq2[int64, []byte] {
	return func(yield func(int64, []byte) bool) {
		rest := b.Frames
		for seq := b.After + 1; seq <= b.Last; seq++ {
			frame, next, _ := bytes.Cut(rest, []byte(frameBreak))
			_, line, _ := bytes.Cut(frame, []byte(dataField))
			if rest = next; !yield(seq, line) {
				return
			}
		}
	}
}

// Decode returns an event from its JSON. The data shares the bytes of the JSON.
func Decode(line []byte) (eventlog.Event, error) {
	var e eventlog.Event
	if err := json.Unmarshal(line, &e); err != nil {
		return e, fmt.Errorf("decode event: %w", err)
	}
	return e, nil
}
