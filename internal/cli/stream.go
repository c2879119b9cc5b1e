package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/overwinter-dev/overwinter/client"
)

// received is one event of a stream, or the error that ended it.
type received struct {
	event client.Event
	err   error
}

// stream reads the events of a session after a position in a new goroutine. The channel is closed
// when the stream has ended, and soon after ctx ends.
func stream(ctx context.Context, api *client.Client, id string, after int64) <-chan received {
	events := make(chan received)
	go func() {
		defer close(events)
		for e, err := range api.Follow(ctx, id, after) {
			select {
			case events <- received{e, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return events
}

// decode reads the data of an event.
func decode[T any](e client.Event) (data T, err error) {
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return data, fmt.Errorf("read event %d: %w", e.Seq, err)
	}
	return data, nil
}
