package durablestream

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestOffsetsSortAsPositionsDo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int64Range(0, 1e15).Draw(t, "a"), rapid.Int64Range(0, 1e15).Draw(t, "b")
		require.Equal(t, a < b, Offset(a) < Offset(b))
		r, err := parse(url.Values{"offset": {Offset(a)}})
		require.NoError(t, err)
		require.Equal(t, a, r.after)
	})
}

func TestCursorsIncrease(t *testing.T) {
	t.Parallel()
	now := cursorEpoch.Add(1000*cursorInterval + time.Second)
	require.EqualValues(t, 1000, nextCursor("", now))
	require.EqualValues(t, 1000, nextCursor("999", now))
	for _, given := range []string{"1000", "1001", "5000"} {
		sent, err := strconv.ParseInt(given, 10, 64)
		require.NoError(t, err)
		next := nextCursor(given, now)
		require.Greater(t, next, sent)
		require.LessOrEqual(t, next, sent+int64(time.Hour/cursorInterval))
	}
	for _, given := range []string{"x", "-5", "99999999999999999999999"} {
		require.EqualValues(t, 1000, nextCursor(given, now), "an invalid cursor is ignored")
	}
}

func TestNoDataBeginsEvent(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		"":               "event: data\ndata:\n\n",
		"a":              "event: data\ndata:a\n\n",
		" a":             "event: data\ndata:  a\n\n",
		"a\n\nevent: b":  "event: data\ndata:a\ndata:\ndata:event: b\n\n",
		"a\r\nb\rc\n":    "event: data\ndata:a\ndata:b\ndata:c\ndata:\n\n",
		"a\r\n\r\nid: 1": "event: data\ndata:a\ndata:\ndata:id: 1\n\n",
	} {
		require.Equal(t, want, string(appendEvent(nil, "data", []byte(data))), "%q", data)
	}
}

func TestMessagesAreEncodedByContentType(t *testing.T) {
	t.Parallel()
	messages := [][]byte{[]byte(`1`), []byte(`{}`)}
	for contentType, want := range map[string][2]string{
		"application/json; charset=utf-8": {"[1,\n{}]", "[1,\n{}]"},
		"text/plain":                      {"1{}", "1{}"},
		"application/octet-stream":        {"1{}", "MXt9"},
		"":                                {"1{}", "MXt9"},
	} {
		b := body{encoding: encodingOf(contentType)}
		b.add(messages)
		require.Equal(t, want[1], string(b.eventData()), contentType)
		require.Equal(t, want[0], string(b.bytes()), contentType)
	}
	none := body{encoding: encodeJSON}
	require.Equal(t, "[]", string(none.bytes()))
}

// hangingLog returns nothing before ctx ends.
type hangingLog struct{}

func (hangingLog) End(ctx context.Context) (End, error) {
	<-ctx.Done()
	return End{}, context.Cause(ctx)
}

func (hangingLog) Follow(ctx context.Context, _ int64, _ time.Duration) (Reader, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func TestReadOfHangingLogTimesOut(t *testing.T) {
	t.Parallel()
	for _, request := range []string{"GET /", "GET /?offset=now", "GET /?offset=-1&live=long-poll", "GET /?offset=-1&live=sse", "HEAD /"} {
		synctest.Test(t, func(t *testing.T) {
			method, target, _ := strings.Cut(request, " ")
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			began := time.Now()
			err := Handler{ReadTimeout: time.Second}.Read(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, method, target, nil), Stream{Log: hangingLog{}})
			require.ErrorIs(t, err, context.DeadlineExceeded, request)
			require.Equal(t, time.Second, time.Since(began), request)
		})
	}
}

// lateLog has one message, and its end a minute later.
type lateLog struct{ hangingLog }

func (lateLog) Follow(context.Context, int64, time.Duration) (Reader, error) {
	return &lateReader{}, nil
}

type lateReader struct{ reads int }

func (r *lateReader) Next(ctx context.Context) (Batch, error) {
	if r.reads++; r.reads == 1 {
		return Batch{Messages: [][]byte{[]byte("1")}, Last: 1, CaughtUp: true}, nil
	}
	select {
	case <-time.After(time.Minute):
		return Batch{Last: 1, Closed: true}, nil
	case <-ctx.Done():
		return Batch{}, context.Cause(ctx)
	}
}

func (r *lateReader) Close() {}

// timedRecorder accepts deadlines.
type timedRecorder struct{ *httptest.ResponseRecorder }

func (timedRecorder) SetReadDeadline(time.Time) error  { return nil }
func (timedRecorder) SetWriteDeadline(time.Time) error { return nil }

func TestStreamOutlivesReadTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := timedRecorder{httptest.NewRecorder()}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/?offset=-1&live=sse", nil)
		require.NoError(t, Handler{ReadTimeout: time.Second, Lifetime: time.Hour}.Read(w, r, Stream{ContentType: "application/json", Log: lateLog{}}))
		require.Contains(t, w.Body.String(), `"streamClosed":true`)
	})
}
