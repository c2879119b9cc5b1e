package api

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// Bounds of a page of transcripts.
const (
	// maxTranscriptPieces is the maximum and the default number of pieces in a page.
	maxTranscriptPieces = 100
	// transcriptPageBytes bounds a page, and leastPieceBytes prevents it from ending with a small
	// part of a file.
	transcriptPageBytes = 1 << 20
	leastPieceBytes     = 64 << 10
	// transcriptStep is the size of the steps in which a file is masked; a piece may exceed its
	// bound by one step.
	transcriptStep = 64 << 10
	// maxTranscriptCursor exceeds the cursor of the longest path.
	maxTranscriptCursor = 4096
)

// transcriptCursor is the start of the next page: a position in a version of a file, or the first
// file after it.
type transcriptCursor struct {
	Path    string `json:"p"`
	Version int64  `json:"v"`
	Offset  int64  `json:"o"`
}

func (t transcriptCursor) String() string {
	data, _ := json.Marshal(t) //nolint:errchkjson // a text and numbers
	return base64.RawURLEncoding.EncodeToString(data)
}

// readTranscriptCursor reads the cursor of a request. It returns the zero value if there is none.
func readTranscriptCursor(c echo.Context) (t transcriptCursor, err error) {
	text := c.QueryParam("cursor")
	if text == "" {
		return t, nil
	}
	if len(text) > maxTranscriptCursor {
		return t, invalid("cursor", "is %d bytes long; at most %d are allowed", len(text), maxTranscriptCursor)
	}
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(data, &t) != nil || t.Path == "" || t.Offset < 0 {
		return t, invalid("cursor", "must be the nextCursor of a page")
	}
	return t, nil
}

// transcriptPiece is a part of a file. The pieces of a version, in order, are the file.
type transcriptPiece struct {
	Path     string `json:"path"`
	Version  int64  `json:"version"`
	Offset   int64  `json:"offset"` // in the stored bytes
	Size     int64  `json:"size"`   // of the content
	Encoding string `json:"encoding"`
	Content  string `json:"content"`
}

// transcriptPage is a page of pieces.
type transcriptPage struct {
	Files      []transcriptPiece `json:"files"`
	NextCursor string            `json:"nextCursor,omitempty"`
}

// page sends a page of all files, or of one file.
func (s *transcripts) page(c echo.Context, sessionID string, positions []transcript.Position, masker *secret.Masker) error {
	limit, err := limitQuery(c, maxTranscriptPieces, maxTranscriptPieces)
	if err != nil {
		return err
	}
	cursor, err := readTranscriptCursor(c)
	if err != nil {
		return err
	}
	positions = slices.SortedFunc(slices.Values(positions), func(a, b transcript.Position) int { return strings.Compare(a.Path, b.Path) })
	page, left := transcriptPage{Files: []transcriptPiece{}}, transcriptPageBytes
	for _, p := range positions {
		if p.Path < cursor.Path {
			continue
		}
		from := int64(0)
		if p.Path == cursor.Path && p.Version == cursor.Version {
			from = cursor.Offset
		}
		if from > 0 && from >= p.Size {
			continue
		}
		if len(page.Files) > 0 && (len(page.Files) == limit || left < leastPieceBytes) {
			page.NextCursor = transcriptCursor{p.Path, p.Version, from}.String()
			break
		}
		piece, end, err := s.piece(c, sessionID, p, from, left, masker)
		if err != nil {
			return err
		}
		page.Files = append(page.Files, piece)
		if end < p.Size {
			page.NextCursor = transcriptCursor{p.Path, p.Version, end}.String()
			break
		}
		left -= int(piece.Size)
	}
	return c.JSON(http.StatusOK, page)
}

// piece reads a part of a file from a position, with about the remaining bytes of the page, and
// returns the start of the next piece. Text at its end that may be the start of a secret is left
// for the next piece.
func (s *transcripts) piece(c echo.Context, sessionID string, p transcript.Position, from int64, room int, masker *secret.Masker) (piece transcriptPiece, end int64, err error) {
	var out []byte
	held, end := "", from
	for data, err := range s.store.TranscriptFrom(c.Request().Context(), sessionID, p, from) {
		if err != nil {
			return piece, 0, err
		}
		for part := range slices.Chunk(data, transcriptStep) {
			var shown string
			shown, held = masker.Stream(held, string(part))
			if len(held) > maxMaskHeld {
				shown, held = shown+masker.Text(held), ""
			}
			out, end = append(out, shown...), end+int64(len(part))
			if len(out) >= room {
				break
			}
		}
		if len(out) >= room {
			break
		}
	}
	if end >= p.Size {
		out = append(out, masker.Text(held)...)
	} else {
		whole := wholeBytes(out)
		end -= int64(len(held) + len(out) - whole)
		out = out[:whole]
	}
	piece = transcriptPiece{Path: p.Path, Version: p.Version, Offset: from, Size: int64(len(out)), Encoding: "utf-8", Content: string(out)}
	if !utf8.Valid(out) {
		piece.Encoding, piece.Content = "base64", base64.StdEncoding.EncodeToString(out)
	}
	return piece, end, nil
}

// wholeBytes returns the length of a text without an incomplete character at its end.
func wholeBytes(text []byte) int {
	for back := 1; back <= min(utf8.UTFMax-1, len(text)); back++ {
		if at := len(text) - back; utf8.RuneStart(text[at]) {
			if !utf8.FullRune(text[at:]) {
				return at
			}
			break
		}
	}
	return len(text)
}

// only returns the positions of one path. Error: not_found if there are none.
func only(positions []transcript.Position, path string) ([]transcript.Position, error) {
	i := slices.IndexFunc(positions, func(p transcript.Position) bool { return p.Path == path })
	if i < 0 {
		return nil, failure.Errorf(failure.NotFound, "the session has no transcript file of that path")
	}
	return positions[i : i+1], nil
}
