// Package listing has the filters and orders of lists of sessions.
package listing

import (
	"time"

	"github.com/overwinter-dev/overwinter/internal/session"
)

// Filter selects sessions and their order. Zero fields select all, newest first.
type Filter struct {
	Status session.State
	Agent  string
	// Metadata are members of the metadata that a session must have, MaxMetadata at most.
	Metadata []MetadataMember
	// CreatedSince is the earliest time of creation, inclusive, CreatedBefore the latest,
	// exclusive.
	CreatedSince, CreatedBefore time.Time
	// Query has words, MaxWords at most, that must all appear in the title, or the start of the ID; case is ignored.
	Query  string
	Sort   Sort
	Limit  int
	Cursor string // as returned with the previous page
}

// MetadataMember is a member of a session's metadata. Numbers and booleans are compared in their
// written form.
type MetadataMember struct{ Key, Value string }

// Bounds of a Filter.
const (
	MaxMetadata = 8
	MaxWords    = 10
)

// Sort is the order of a list.
type Sort string

// The orders of lists.
const (
	Newest      Sort = "-createdAt"
	Oldest      Sort = "createdAt"
	Active      Sort = "-lastActivityAt"
	LeastActive Sort = "lastActivityAt"
)

// Sorts are all orders of lists.
var Sorts = []Sort{Newest, Oldest, Active, LeastActive}
