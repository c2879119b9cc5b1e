package api

import (
	"bytes"
	"context"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/feed"
)

// Bounds of a page of events.
const (
	eventsOfPage    = 200
	maxEventsOfPage = 1000
	bytesOfEvents   = 1 << 20 // a page ends with the event that reaches it
	maxPollWait     = time.Minute
)

// wantsPage reports whether a client explicitly accepts JSON and does not accept a stream.
func wantsPage(c echo.Context) bool {
	wants := false
	for given := range strings.SplitSeq(c.Request().Header.Get(echo.HeaderAccept), ",") {
		switch media, _, _ := mime.ParseMediaType(given); media {
		case "text/event-stream":
			return false
		case echo.MIMEApplicationJSON:
			wants = true
		}
	}
	return wants
}

// pollQuery reads the query parameters of a page of events.
func pollQuery(c echo.Context) (limit int, wait time.Duration, err error) {
	if !wantsPage(c) {
		for _, name := range []string{"limit", "wait"} {
			if c.QueryParam(name) != "" {
				return 0, 0, invalid(name, "needs the header Accept: application/json; without it the answer is a stream")
			}
		}
	}
	if limit, err = limitQuery(c, eventsOfPage, maxEventsOfPage); err != nil {
		return 0, 0, err
	}
	if text := c.QueryParam("wait"); text != "" {
		wait, err = time.ParseDuration(text)
		if err != nil || wait < 0 || wait > maxPollWait {
			return 0, 0, invalid("wait", `must be a duration from 0s to %s, such as "20s"`, maxPollWait)
		}
	}
	return limit, wait, nil
}

// page returns the events after a position, and waits for one if there are none.
func (s *streams) page(ctx context.Context, c echo.Context, id string, after int64, limit int, wait time.Duration) error {
	beat := wait
	if beat == 0 {
		beat = s.cfg.RequestTimeout
	}
	// Opening the reader already reads events, so it is part of the first read.
	first, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	log := &sessionLog{streams: s, id: id}
	reader, err := log.read(first, after, beat)
	if err != nil {
		return err
	}
	defer reader.Close()
	p := eventPage{limit: limit, after: after}
	if err := p.read(first, reader); err != nil {
		return err
	}
	if p.items == 0 && len(p.gaps) == 0 && !p.ended && wait > 0 {
		if err := p.read(ctx, reader); err != nil {
			return err
		}
	}
	header := c.Response().Header()
	header.Add(echo.HeaderVary, echo.HeaderAccept)
	return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, p.encode())
}

// eventPage collects the events of an answer.
type eventPage struct {
	limit    int
	body     []byte // the events, each followed by a comma
	items    int
	gaps     []feed.Gap
	after    int64 // position of the last event, or of the end of a gap
	caughtUp bool  // there were no further events
	ended    bool  // no further events will follow
}

// read adds events until the page is full, there are currently no more, or the wait is over.
func (p *eventPage) read(ctx context.Context, reader *sessionReader) error {
	for {
		b, gap, err := reader.next(ctx)
		if err != nil {
			return err
		}
		if gap != nil {
			p.gaps, p.after = append(p.gaps, *gap), gap.To
			continue
		}
		waited := len(b.Messages) == 0
		p.after = b.Last - int64(len(b.Messages))
		for _, m := range b.Messages {
			if p.full() {
				p.caughtUp = false
				return nil
			}
			p.body = append(append(p.body, m...), ",\n"...)
			p.items++
			p.after++
		}
		p.caughtUp = p.caughtUp && waited || b.CaughtUp
		p.ended = b.Closed
		if b.CaughtUp || b.Closed || waited || p.full() {
			return nil
		}
	}
}

func (p *eventPage) full() bool { return p.items >= p.limit || len(p.body) >= bytesOfEvents }

func (p *eventPage) encode() []byte {
	text := append([]byte(`{"items":[`), bytes.TrimSuffix(p.body, []byte(",\n"))...)
	text = append(text, `],"after":`...)
	text = strconv.AppendInt(text, p.after, 10)
	text = append(text, `,"caughtUp":`...)
	text = strconv.AppendBool(text, p.caughtUp)
	text = append(text, `,"ended":`...)
	text = strconv.AppendBool(text, p.ended)
	if len(p.gaps) > 0 {
		text = append(text, `,"gaps":`...)
		for i, gap := range p.gaps {
			text = fmt.Appendf(append(text, "[,"[min(i, 1)]), `{"from":%d,"to":%d}`, gap.From, gap.To)
		}
		text = append(text, ']')
	}
	return append(text, "}\n"...)
}
