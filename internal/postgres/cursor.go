package postgres

import (
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/listing"
)

// Sizes of a page in items.
const (
	defaultPage = 50
	maxPage     = 200
	// maxPageBytes bounds the bytes of a page of prompts or questions; the item that reaches it is
	// included.
	maxPageBytes = 1 << 20
)

func pageLimit(asked int) int {
	if asked <= 0 {
		return defaultPage
	}
	return min(asked, maxPage)
}

// sessionCursor is the last session of a page. Sort is empty for the order newest first, as in
// cursors of earlier releases.
type sessionCursor struct {
	At   time.Time    `json:"t"`
	ID   string       `json:"i"`
	Sort listing.Sort `json:"o,omitempty"`
}

// promptCursor is the last prompt of a page; prompts are listed oldest first.
type promptCursor struct {
	Ordinal int64 `json:"o"`
}

// blockCursor is the last block of a page of a conversation, and the log position at which the
// first page was read.
type blockCursor struct {
	Position int64 `json:"p"`
	Seq      int64 `json:"s"`
}

// deliveryCursor is the last delivery of a page; deliveries are listed newest first.
type deliveryCursor struct {
	ID string `json:"i"`
}

// cursorEncode encodes a cursor as an opaque string: its content is not part of the API.
func cursorEncode(position any) string {
	data, err := json.Marshal(position)
	if err != nil {
		panic(err) // a struct of times, strings and numbers always marshals
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

func cursorDecode(cursor string, into any) error {
	data, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		return &failure.Error{
			Code: failure.Invalid, Message: "the cursor was not returned with a page",
			Fields: []failure.Field{{Field: "cursor", Message: "must be a nextCursor of the same list"}}, Err: err,
		}
	}
	return nil
}
