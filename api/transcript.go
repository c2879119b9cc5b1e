package api

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"path"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// transcriptStore reads the native transcripts of agents.
type transcriptStore interface {
	// TranscriptPositions lists the native transcripts, sorted by path. Error: session_not_found.
	TranscriptPositions(ctx context.Context, sessionID string) ([]transcript.Position, error)
	// TranscriptContent reads the content up to a position in pieces of at most 1 MiB. Each piece
	// is valid until the next one is read.
	TranscriptContent(ctx context.Context, sessionID string, p transcript.Position) iter.Seq2[[]byte, error]
	// TranscriptFrom is TranscriptContent from an offset.
	TranscriptFrom(ctx context.Context, sessionID string, p transcript.Position, from int64) iter.Seq2[[]byte, error]
}

// transcripts are the routes of transcripts.
type transcripts struct {
	*Server
	store transcriptStore
}

// transcriptRoute is a streaming route, like that of the events.
const transcriptRoute = "/api/sessions/:id/transcript"

// maxMaskHeld bounds the text of a transcript that is held back because it may be the beginning of
// a secret. Beyond this limit, for example with a million line breaks in an encoded value, the held
// text is masked separately.
const maxMaskHeld = 1 << 20

// transcript sends the agent's own files and holds one piece in memory. Each write has a separate
// deadline, so a slow reader has unlimited time as long as it keeps reading.
func (s *transcripts) transcript(c echo.Context) error {
	id, err := sessionID(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	bounded, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	positions, err := s.store.TranscriptPositions(bounded, id)
	if err != nil {
		return err
	}
	masker, err := s.cfg.Masks.Masker(bounded)
	if err != nil {
		return err
	}
	if want := c.QueryParam("path"); want != "" {
		if positions, err = only(positions, want); err != nil {
			return err
		}
	}
	if query := c.QueryParams(); query.Has("limit") || query.Has("cursor") {
		return s.page(c, id, positions, masker)
	}
	content := func(p transcript.Position) iter.Seq2[[]byte, error] {
		return masked(masker, s.store.TranscriptContent(ctx, id, p))
	}
	out := &transcriptWriter{server: s.Server, response: c.Response(), control: http.NewResponseController(c.Response())}
	out.buffer = bufio.NewWriterSize(out, 64<<10)
	if err := out.control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("lift read deadline: %w", err)
	}
	if want := c.QueryParam("path"); want != "" {
		out.contentType = transcriptType(want)
		for piece, err := range content(positions[0]) {
			if err == nil {
				_, err = out.buffer.Write(piece)
			}
			if err != nil {
				return s.interrupted(ctx, out, err)
			}
		}
		return s.interrupted(ctx, out, out.end())
	}
	out.contentType = echo.MIMEApplicationJSON
	if err := out.files(positions, content); err != nil {
		return s.interrupted(ctx, out, err)
	}
	return s.interrupted(ctx, out, out.end())
}

// interrupted aborts a started response, so that it does not look complete.
func (s *transcripts) interrupted(ctx context.Context, out *transcriptWriter, err error) error {
	if err == nil || !out.response.Committed {
		return err
	}
	s.logger.LogAttrs(ctx, slog.LevelWarn, "transcript download was interrupted", slog.Any("error", err))
	panic(http.ErrAbortHandler)
}

// masked masks content as it is read.
func masked(masker *secret.Masker, content iter.Seq2[[]byte, error]) iter.Seq2[[]byte, error] {
	if masker == nil {
		return content
	}
	return func(yield func([]byte, error) bool) {
		held := ""
		for piece, err := range content {
			if err != nil {
				yield(nil, err)
				return
			}
			var shown string
			shown, held = masker.Stream(held, string(piece))
			if len(held) > maxMaskHeld {
				shown, held = shown+masker.Text(held), ""
			}
			if !yield([]byte(shown), nil) {
				return
			}
		}
		yield([]byte(masker.Text(held)), nil)
	}
}

// transcriptWriter writes a response in pieces, each within WriteTimeout.
type transcriptWriter struct {
	server      *Server
	response    *echo.Response
	control     *http.ResponseController
	contentType string
	buffer      *bufio.Writer
}

// Write implements io.Writer for the buffer.
func (w *transcriptWriter) Write(data []byte) (int, error) {
	w.begin()
	if err := w.control.SetWriteDeadline(time.Now().Add(w.server.cfg.WriteTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	return w.response.Write(data)
}

func (w *transcriptWriter) begin() {
	if !w.response.Committed {
		w.response.Header().Set(echo.HeaderContentType, w.contentType)
		w.response.WriteHeader(http.StatusOK)
	}
}

func (w *transcriptWriter) end() error {
	err := w.buffer.Flush()
	if err == nil {
		w.begin() // in case there was no data to write
	}
	return err
}

// files writes all files as JSON. Content is text if the bytes are UTF-8, otherwise base64, so each
// file is read twice.
func (w *transcriptWriter) files(positions []transcript.Position, content func(transcript.Position) iter.Seq2[[]byte, error]) error {
	w.buffer.WriteString(`{"files":[`) //nolint:errcheck // Flush returns it
	for i, p := range positions {
		if i > 0 {
			w.buffer.WriteByte(',') //nolint:errcheck // Flush returns it
		}
		if err := w.file(p, content(p)); err != nil {
			return err
		}
	}
	_, err := w.buffer.WriteString("]}\n")
	return err
}

func (w *transcriptWriter) file(p transcript.Position, content iter.Seq2[[]byte, error]) error {
	var size int64
	isText := true
	for piece, err := range wholeRunes(content) {
		if err != nil {
			return err
		}
		size += int64(len(piece))
		isText = isText && utf8.Valid(piece)
	}
	head := struct {
		Path     string `json:"path"`
		Version  int64  `json:"version"`
		Size     int64  `json:"size"`
		Encoding string `json:"encoding"`
	}{p.Path, p.Version, size, "utf-8"}
	if !isText {
		head.Encoding = "base64"
	}
	encoded, err := json.Marshal(head)
	if err != nil {
		return err
	}
	w.buffer.Write(encoded[:len(encoded)-1]) //nolint:errcheck // Flush returns it
	w.buffer.WriteString(`,"content":"`)     //nolint:errcheck // Flush returns it
	if isText {
		err = w.text(content)
	} else {
		err = w.base64(content)
	}
	if err != nil {
		return err
	}
	_, err = w.buffer.WriteString(`"}`)
	return err
}

func (w *transcriptWriter) text(content iter.Seq2[[]byte, error]) error {
	for piece, err := range wholeRunes(content) {
		if err != nil {
			return err
		}
		quoted, err := json.Marshal(string(piece))
		if err != nil {
			return err
		}
		if _, err := w.buffer.Write(quoted[1 : len(quoted)-1]); err != nil {
			return err
		}
	}
	return nil
}

func (w *transcriptWriter) base64(content iter.Seq2[[]byte, error]) error {
	encoder := base64.NewEncoder(base64.StdEncoding, w.buffer)
	for piece, err := range content {
		if err != nil {
			return err
		}
		if _, err := encoder.Write(piece); err != nil {
			return err
		}
	}
	return encoder.Close()
}

// wholeRunes splits content between characters if it is UTF-8.
func wholeRunes(content iter.Seq2[[]byte, error]) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		var carried []byte
		for piece, err := range content {
			if err != nil {
				yield(nil, err)
				return
			}
			piece = append(carried, piece...)
			end := wholeBytes(piece)
			if !yield(piece[:end], nil) {
				return
			}
			carried = append([]byte(nil), piece[end:]...)
		}
		if len(carried) > 0 {
			yield(carried, nil)
		}
	}
}

func transcriptType(name string) string {
	if path.Ext(name) == ".jsonl" {
		return "application/x-ndjson"
	}
	return echo.MIMEOctetStream
}
