package session

import "time"

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
