package durablestreams

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/durablestream"
	"github.com/overwinter-dev/overwinter/internal/failure"
)

// shim implements the streams that the suite creates and writes with PUT, POST and DELETE. The
// handler under test serves its reads.
type shim struct {
	reads durablestream.Handler

	mu      sync.Mutex
	streams map[string]*stream
}

// stream is one stream in memory.
type stream struct {
	path        string
	contentType string
	ttl         string // seconds, as given
	expiresAt   string // as given

	mu        sync.Mutex
	messages  [][]byte
	closed    bool
	deleted   bool
	changed   chan struct{} // closed with every change, and replaced
	lastSeq   string
	producers map[string]producer
	closedBy  write
	expires   time.Time // zero for never
}

type producer struct{ epoch, seq int64 }

// write identifies the writer of a write.
type write struct {
	id         string
	epoch, seq int64
}

func newShim(reads durablestream.Handler) *shim {
	return &shim{reads: reads, streams: map[string]*stream{}}
}

func (s *shim) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cross-Origin-Resource-Policy", "cross-origin")
	switch r.Method {
	case http.MethodOptions:
		header.Set("Access-Control-Allow-Headers", "If-None-Match")
		w.WriteHeader(http.StatusNoContent)
		return
	case http.MethodPut:
		s.create(w, r)
		return
	}
	st := s.find(r.URL.Path)
	if st == nil {
		http.Error(w, "no such stream", http.StatusNotFound)
		return
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		st.touch(r.Method)
		st.describe(header)
		err := s.reads.Read(w, r, durablestream.Stream{ID: r.URL.Path, ContentType: st.contentType, Log: st})
		switch failure.CodeOf(err) {
		case "":
		case failure.Invalid:
			http.Error(w, err.Error(), http.StatusBadRequest)
		case failure.NotFound:
			http.Error(w, err.Error(), http.StatusNotFound)
		}
	case http.MethodPost:
		st.touch(r.Method)
		st.post(w, r)
	case http.MethodDelete:
		s.mu.Lock()
		delete(s.streams, r.URL.Path)
		s.mu.Unlock()
		st.change(func() { st.deleted = true })
		w.WriteHeader(http.StatusNoContent)
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

func (s *shim) find(path string) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.streams[path]
	if st == nil {
		return nil
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.expires.IsZero() && !time.Now().Before(st.expires) {
		delete(s.streams, path)
		return nil
	}
	return st
}

var (
	mediaType = regexp.MustCompile(`^[\w-]+/[\w-]+`)
	seconds   = regexp.MustCompile(`^(0|[1-9]\d*)$`)
	digits    = regexp.MustCompile(`^\d{1,15}$`)
)

func isTrue(value string) bool { return strings.EqualFold(value, "true") }

func (s *shim) create(w http.ResponseWriter, r *http.Request) {
	st := &stream{path: r.URL.Path, contentType: r.Header.Get("Content-Type"), changed: make(chan struct{}), producers: map[string]producer{}}
	if !mediaType.MatchString(st.contentType) {
		st.contentType = "application/octet-stream"
	}
	st.ttl, st.expiresAt = r.Header.Get("Stream-TTL"), r.Header.Get("Stream-Expires-At")
	if !st.setExpiry() {
		http.Error(w, "invalid Stream-TTL or Stream-Expires-At", http.StatusBadRequest)
		return
	}
	content, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	messages, err := split(st.contentType, content, true)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	st.messages, st.closed = messages, isTrue(r.Header.Get(durablestream.HeaderClosed))
	status := http.StatusCreated
	if old := s.find(r.URL.Path); old != nil {
		if !strings.EqualFold(old.contentType, st.contentType) || old.ttl != st.ttl || old.expiresAt != st.expiresAt || old.closed != st.closed {
			http.Error(w, "exists with another configuration", http.StatusConflict)
			return
		}
		st, status = old, http.StatusOK
	} else {
		s.mu.Lock()
		s.streams[r.URL.Path] = st
		s.mu.Unlock()
		w.Header().Set("Location", "http://"+r.Host+r.URL.Path)
	}
	w.Header().Set("Content-Type", st.contentType)
	st.position(w.Header())
	w.WriteHeader(status)
}

func (st *stream) setExpiry() bool {
	switch {
	case st.ttl != "" && st.expiresAt != "" || st.ttl != "" && !seconds.MatchString(st.ttl):
		return false
	case st.ttl != "":
		n, err := strconv.Atoi(st.ttl)
		st.expires = time.Now().Add(time.Duration(n) * time.Second)
		return err == nil
	case st.expiresAt != "":
		at, err := time.Parse(time.RFC3339Nano, st.expiresAt)
		st.expires = at
		return err == nil
	}
	return true
}

// touch renews the time to live; HEAD does not.
func (st *stream) touch(method string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.ttl != "" && method != http.MethodHead {
		st.setExpiry()
	}
}

// describe sets the headers of HEAD that the handler does not set.
func (st *stream) describe(header http.Header) {
	for name, value := range map[string]string{"Stream-TTL": st.ttl, "Stream-Expires-At": st.expiresAt} {
		if value != "" {
			header.Set(name, value)
		}
	}
}

func (st *stream) position(header http.Header) {
	st.mu.Lock()
	defer st.mu.Unlock()
	header.Set(durablestream.HeaderNextOffset, durablestream.Offset(int64(len(st.messages))))
	if st.closed {
		header.Set(durablestream.HeaderClosed, "true")
	}
}

// change applies a change and wakes readers.
func (st *stream) change(f func()) {
	st.mu.Lock()
	defer st.mu.Unlock()
	f()
	close(st.changed)
	st.changed = make(chan struct{})
}

func split(contentType string, content []byte, create bool) ([][]byte, error) {
	switch {
	case len(content) == 0:
		return nil, nil
	case mediaOf(contentType) != "application/json":
		return [][]byte{content}, nil
	case !json.Valid(content):
		return nil, errors.New("invalid JSON")
	}
	content = bytes.TrimSpace(content)
	if content[0] != '[' {
		return [][]byte{content}, nil
	}
	var elements []json.RawMessage
	if err := json.Unmarshal(content, &elements); err != nil {
		return nil, err
	}
	if len(elements) == 0 && !create {
		return nil, errors.New("an empty array is not a message")
	}
	var messages [][]byte
	for _, e := range elements {
		messages = append(messages, e)
	}
	return messages, nil
}

// post appends, closes, or both.
func (st *stream) post(w http.ResponseWriter, r *http.Request) {
	by, ok := producerOf(r)
	content, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	closing := isTrue(r.Header.Get(durablestream.HeaderClosed))
	contentType := r.Header.Get("Content-Type")
	if !ok || len(content) == 0 && !closing || len(content) > 0 && contentType == "" {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	status := 0
	st.change(func() { status = st.append(w.Header(), by, contentType, r.Header.Get("Stream-Seq"), content, closing) })
	st.position(w.Header())
	if status != http.StatusNoContent && status != http.StatusOK && status != http.StatusConflict {
		w.Header().Del(durablestream.HeaderNextOffset)
	}
	w.WriteHeader(status)
}

func producerOf(r *http.Request) (*write, bool) {
	ids, epochs, seqs := r.Header["Producer-Id"], r.Header["Producer-Epoch"], r.Header["Producer-Seq"]
	switch n := len(ids) + len(epochs) + len(seqs); {
	case n == 0:
		return nil, true
	case n != 3 || len(ids) != 1 || len(epochs) != 1 || ids[0] == "" || !digits.MatchString(epochs[0]) || !digits.MatchString(seqs[0]):
		return nil, false
	}
	epoch, _ := strconv.ParseInt(epochs[0], 10, 64)
	seq, _ := strconv.ParseInt(seqs[0], 10, 64)
	return &write{id: ids[0], epoch: epoch, seq: seq}, true
}

// append returns the status of a write. The caller holds st.mu.
func (st *stream) append(header http.Header, by *write, contentType, seq string, content []byte, closing bool) int {
	if st.closed {
		switch {
		case by != nil && *by == st.closedBy:
			st.echo(header, by)
			return http.StatusNoContent
		case by == nil && closing && len(content) == 0:
			return http.StatusNoContent
		}
		return http.StatusConflict
	}
	var messages [][]byte
	if len(content) > 0 {
		if !strings.EqualFold(strings.TrimSpace(mediaOf(contentType)), mediaOf(st.contentType)) {
			return http.StatusConflict
		}
		var err error
		if messages, err = split(st.contentType, content, false); err != nil {
			return http.StatusBadRequest
		}
	}
	if by != nil {
		if status := st.admit(header, by); status != 0 {
			return status
		}
	}
	if seq != "" {
		if seq <= st.lastSeq {
			return http.StatusConflict
		}
		st.lastSeq = seq
	}
	st.messages = append(st.messages, messages...)
	if closing {
		st.closed = true
	}
	if by == nil {
		return http.StatusNoContent
	}
	st.producers[by.id] = producer{by.epoch, by.seq}
	if closing {
		st.closedBy = *by
	}
	st.echo(header, by)
	if len(content) == 0 {
		return http.StatusNoContent
	}
	return http.StatusOK
}

func mediaOf(contentType string) string {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.TrimSpace(media)
}

func (st *stream) echo(header http.Header, by *write) {
	header.Set("Producer-Epoch", strconv.FormatInt(by.epoch, 10))
	header.Set("Producer-Seq", strconv.FormatInt(st.producers[by.id].seq, 10))
}

// admit returns the status of a write that is not accepted, or 0.
func (st *stream) admit(header http.Header, by *write) int {
	p, known := st.producers[by.id]
	switch {
	case known && by.epoch < p.epoch:
		header.Set("Producer-Epoch", strconv.FormatInt(p.epoch, 10))
		return http.StatusForbidden
	case known && by.epoch == p.epoch && by.seq <= p.seq:
		st.echo(header, by)
		return http.StatusNoContent
	case known && by.epoch > p.epoch && by.seq != 0:
		return http.StatusBadRequest
	case known && by.epoch == p.epoch && by.seq > p.seq+1, !known && by.seq != 0:
		expected := int64(0)
		if known {
			expected = p.seq + 1
		}
		header.Set("Producer-Expected-Seq", strconv.FormatInt(expected, 10))
		header.Set("Producer-Received-Seq", strconv.FormatInt(by.seq, 10))
		return http.StatusConflict
	}
	return 0
}
