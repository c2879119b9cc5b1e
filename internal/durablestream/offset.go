package durablestream

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"regexp"
	"strconv"
	"time"

	"github.com/overwinter-dev/overwinter/internal/failure"
)

// Offsets that are not positions.
const (
	fromStart = "-1"
	fromNow   = "now"
)

// Offset returns the text of a position. Offsets sort like their positions.
func Offset(position int64) string { return fmt.Sprintf("%016d", position) }

var offsetPattern = regexp.MustCompile(`^[0-9]{16}$`)

// modes of a read: the values of the parameter live.
const (
	modeCatchUp  = ""
	modeLongPoll = "long-poll"
	modeSSE      = "sse"
)

// read has the parameters of a request.
type read struct {
	offset string // as given; fromStart if none was
	after  int64  // the position; unused with fromNow
	mode   string
	cursor string
}

// parse parses the parameters of a request. As the protocol specifies, other parameters are
// ignored.
func parse(query url.Values) (read, error) {
	r := read{offset: fromStart, cursor: query.Get("cursor")}
	for _, name := range []string{"offset", "live"} {
		if len(query[name]) > 1 {
			return read{}, invalid(name, "is given more than once")
		}
	}
	switch r.mode = query.Get("live"); r.mode {
	case modeCatchUp, modeLongPoll, modeSSE:
	default:
		return read{}, invalid("live", `must be "long-poll" or "sse", or absent`)
	}
	if given := query["offset"]; len(given) == 1 {
		r.offset = given[0]
	} else if r.mode != modeCatchUp {
		return read{}, invalid("offset", "is required with live: -1 for the start of the stream, now for its end, or a Stream-Next-Offset")
	}
	switch {
	case r.offset == fromStart || r.offset == fromNow:
		return r, nil
	case !offsetPattern.MatchString(r.offset):
		return read{}, invalid("offset", "must be -1, now, or a Stream-Next-Offset of this stream: 16 digits")
	}
	var err error
	r.after, err = strconv.ParseInt(r.offset, 10, 64)
	return r, err
}

func invalid(field, message string) error {
	return &failure.Error{
		Code: failure.Invalid, Message: field + " " + message,
		Fields: []failure.Field{{Field: field, Message: message}},
	}
}

// Cursors count intervals of time from an epoch. The protocol defines both.
const cursorInterval = 20 * time.Second

var (
	cursorEpoch   = time.Date(2024, time.October, 9, 0, 0, 0, 0, time.UTC)
	cursorPattern = regexp.MustCompile(`^[0-9]{1,15}$`)
)

// currentCursor returns the cursor for a time.
func currentCursor(now time.Time) int64 { return int64(now.Sub(cursorEpoch) / cursorInterval) }

// nextCursor returns the cursor of a response to a request with a cursor. Clients send it with
// their next request, so that its URL changes over time and a cache does not serve the same
// response forever. It is greater than the given one.
func nextCursor(given string, now time.Time) int64 {
	current := currentCursor(now)
	if cursorPattern.MatchString(given) {
		if sent, err := strconv.ParseInt(given, 10, 64); err == nil && sent >= current {
			jitter := time.Duration(1+rand.Int64N(3600)) * time.Second //nolint:gosec // it spreads the keys of caches
			return sent + max(1, int64(jitter/cursorInterval))
		}
	}
	return current
}
