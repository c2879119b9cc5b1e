package durablestream

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The protocol's headers.
const (
	HeaderNextOffset = "Stream-Next-Offset"
	headerUpToDate   = "Stream-Up-To-Date"
	HeaderClosed     = "Stream-Closed"
	headerCursor     = "Stream-Cursor"
	headerEncoding   = "Stream-Sse-Data-Encoding"
)

// Handler serves reads. Zero fields have defaults.
type Handler struct {
	// Chunk limits a response that is not a stream of events: it has at least one message, and no
	// further one after that many bytes. Default 256 KiB.
	Chunk int
	// ReadTimeout bounds the time until the log returns its end or its first messages, or that there
	// are none. Default 15 s.
	ReadTimeout time.Duration
	// LongPoll is how long a long poll waits. Default 20 s.
	LongPoll time.Duration
	// Lifetime of a stream of events, after which the client reconnects. Default 60 s.
	Lifetime time.Duration
	// Heartbeat is the time between control events if nothing else is sent. Default 15 s.
	Heartbeat time.Duration
	// WriteTimeout bounds each write of 32 KiB. Default 10 s.
	WriteTimeout time.Duration
}

func (h Handler) withDefaults() Handler {
	if h.Chunk <= 0 {
		h.Chunk = 256 << 10
	}
	for _, d := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{{&h.ReadTimeout, 15 * time.Second}, {&h.LongPoll, 20 * time.Second}, {&h.Lifetime, time.Minute}, {&h.Heartbeat, 15 * time.Second}, {&h.WriteTimeout, 10 * time.Second}} {
		if *d.value <= 0 {
			*d.value = d.fallback
		}
	}
	return h
}

// Read serves a GET or HEAD. The caller must respond to an error that occurs before the response
// has begun; later errors are the reason why it ended.
func (h Handler) Read(w http.ResponseWriter, r *http.Request, s Stream) error {
	h = h.withDefaults()
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	ctx := r.Context()
	first, cancel := context.WithTimeout(ctx, h.ReadTimeout)
	defer cancel()
	if r.Method == http.MethodHead {
		return h.head(first, w, s)
	}
	asked, err := parse(r.URL.Query())
	if err != nil {
		return err
	}
	if asked.offset == fromNow {
		end, err := s.Log.End(first)
		if err != nil {
			return err
		}
		asked.after = end.Newest
		if asked.mode == modeCatchUp {
			setPosition(header, end.Newest, true, end.Closed)
			return h.write(w, s, http.StatusOK, (&body{encoding: encodingOf(s.ContentType)}).bytes())
		}
	}
	beat := h.LongPoll
	if asked.mode == modeSSE {
		beat = min(h.Heartbeat, h.Lifetime)
	}
	reader, err := s.Log.Follow(first, asked.after, beat)
	if err != nil {
		return err
	}
	defer reader.Close()
	a := &answer{handler: h, w: w, control: http.NewResponseController(w), request: r, stream: s, asked: asked, reader: reader}
	if asked.mode == modeSSE {
		return a.events(ctx, first)
	}
	return a.chunk(ctx, first)
}

func (h Handler) head(ctx context.Context, w http.ResponseWriter, s Stream) error {
	end, err := s.Log.End(ctx)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", s.ContentType)
	setPosition(w.Header(), end.Newest, false, end.Closed)
	w.WriteHeader(http.StatusOK)
	return nil
}

func setPosition(header http.Header, position int64, upToDate, closed bool) {
	header.Set(HeaderNextOffset, Offset(position))
	if upToDate {
		header.Set(headerUpToDate, "true")
	}
	if closed {
		header.Set(HeaderClosed, "true")
	}
}

func (h Handler) write(w http.ResponseWriter, s Stream, status int, content []byte) error {
	w.Header().Set("Content-Type", s.ContentType)
	w.WriteHeader(status)
	return writeTimed(w, http.NewResponseController(w), content, h.WriteTimeout)
}

// answer is one response that reads the log.
type answer struct {
	handler Handler
	w       http.ResponseWriter
	control *http.ResponseController
	request *http.Request
	stream  Stream
	asked   read
	reader  Reader
}

// chunk serves a catch-up read or a long poll. The context first bounds its first read.
func (a *answer) chunk(ctx, first context.Context) error {
	content := body{encoding: encodingOf(a.stream.ContentType)}
	b, err := a.collect(first, &content)
	if err != nil {
		return err
	}
	header := a.w.Header()
	if a.asked.mode == modeLongPoll {
		if content.count == 0 && !b.Closed {
			if b, err = a.collect(ctx, &content); err != nil {
				return err
			}
		}
		header.Set(headerCursor, strconv.FormatInt(nextCursor(a.asked.cursor, time.Now()), 10))
		if content.count == 0 {
			setPosition(header, b.Last, true, b.Closed)
			a.w.WriteHeader(http.StatusNoContent)
			return nil
		}
	}
	setPosition(header, b.Last, b.CaughtUp, b.Closed)
	tag := a.tag(b.Last, b.Closed)
	if a.asked.offset != fromNow {
		header.Set("ETag", tag)
		if matches(a.request.Header.Get("If-None-Match"), tag) {
			a.w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	return a.handler.write(a.w, a.stream, http.StatusOK, content.bytes())
}

// collect reads until the chunk is full or no more messages are available. It returns the batch
// that was read last.
func (a *answer) collect(ctx context.Context, content *body) (Batch, error) {
	for {
		b, err := a.reader.Next(ctx)
		if err != nil {
			return Batch{}, err
		}
		content.add(b.Messages)
		waited := len(b.Messages) == 0
		if b.CaughtUp || b.Closed || waited || len(content.buf) >= a.handler.Chunk {
			return b, nil
		}
	}
}

// tag returns the entity tag of a response. Its content depends only on its start, its end, and on
// whether more can follow.
func (a *answer) tag(last int64, closed bool) string {
	suffix := ""
	if closed {
		suffix = ":c"
	}
	return fmt.Sprintf(`"%s:%s:%s%s"`, a.stream.ID, a.asked.offset, Offset(last), suffix)
}

// matches reports whether a list of entity tags contains one.
func matches(list, tag string) bool {
	for given := range strings.SplitSeq(list, ",") {
		given = strings.TrimPrefix(strings.TrimSpace(given), "W/")
		if given == tag || given == "*" {
			return true
		}
	}
	return false
}
