package durablestream

import (
	"context"
	"time"
)

// Stream is the stream that a request reads.
type Stream struct {
	ID          string // names the stream in entity tags
	ContentType string // application/json makes each message an element of an array
	Log         Log
}

// Log has the messages of a stream. Their positions ascend from 1.
type Log interface {
	// End returns the end of the log.
	End(ctx context.Context) (End, error)
	// Follow opens a reader of the messages after a position. beat is the longest wait of its Next.
	// The reader does not depend on ctx. The caller must close it.
	Follow(ctx context.Context, after int64, beat time.Duration) (Reader, error)
}

// End is the end of a log.
type End struct {
	Newest int64 // position of the newest message, 0 if there is none
	Closed bool  // no message will follow it
}

// Reader reads a log.
type Reader interface {
	// Next returns messages in order, without gap or repeat. If there are none it returns once with CaughtUp set, then
	// waits for the next message or for the end of the stream, and returns an empty batch if neither comes. A batch is
	// valid until the next call.
	Next(ctx context.Context) (Batch, error)
	Close()
}

// Batch is the result of one read.
type Batch struct {
	Messages [][]byte
	Last     int64 // position of the last message, or of the reader if there are none
	CaughtUp bool  // there were no further messages
	Closed   bool  // there will be no further messages
}
