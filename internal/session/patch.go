package session

import (
	"encoding/json"
	"time"
)

// Patch changes what is not nil.
type Patch struct {
	Title       *string
	Metadata    json.RawMessage
	IdleTimeout *time.Duration
	Options     *Options
	Profile     *string // ID@VERSION
	// Workspace takes the place of the present one; a zero one stands for none.
	Workspace *Workspace
}

// ListFilter chooses sessions and their order. Zero fields choose all, newest first.
type ListFilter struct {
	Status State
	Agent  string
	// Metadata are members of the metadata that a session must have, MaxListMetadata at most.
	Metadata []MetadataMember
	// CreatedSince is the earliest time of creation, CreatedBefore the first that is too late.
	CreatedSince, CreatedBefore time.Time
	// Query has words, MaxListWords at most, that must all appear in the title, or the start of the ID; case is ignored.
	Query  string
	Sort   ListSort
	Limit  int
	Cursor string // as returned with the page before
}

// MetadataMember is a member of a session's metadata. Numbers and booleans are compared as they are written.
type MetadataMember struct{ Key, Value string }

// Bounds of a ListFilter.
const (
	MaxListMetadata = 8
	MaxListWords    = 10
)

// ListSort is the order of a list.
type ListSort string

// The orders of lists.
const (
	SortNewest      ListSort = "-createdAt"
	SortOldest      ListSort = "createdAt"
	SortActive      ListSort = "-lastActivityAt"
	SortLeastActive ListSort = "lastActivityAt"
)

// ListSorts are all orders of lists.
var ListSorts = []ListSort{SortNewest, SortOldest, SortActive, SortLeastActive}

// Idempotency is a client's key for a create, with a digest of the body, so that a resend finds
// what the first call made, and a key with another body is refused.
type Idempotency struct {
	Key    string
	Digest string
	// Refusal is what a request fails with that is not repeated; nil if it may be carried out.
	Refusal error
}
