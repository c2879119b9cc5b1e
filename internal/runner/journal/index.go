package journal

import "sort"

const (
	// indexFrames and indexBytes are how far apart the entries of an index are at most, except for one long record.
	indexFrames = 64
	indexBytes  = 256 << 10
)

// index is where some frames are in the log. It is in memory only: the log has what it says.
type index struct{ entries []indexEntry }

type indexEntry struct{ frame, offset int64 }

// add is called for every frame in order.
func (x *index) add(frame, offset int64) {
	if n := len(x.entries); n > 0 {
		last := x.entries[n-1]
		if frame < last.frame+indexFrames && offset < last.offset+indexBytes {
			return
		}
	}
	x.entries = append(x.entries, indexEntry{frame, offset})
}

// before returns the last frame of the index that is not after the one asked for, and where it is. Without one, that
// is the beginning of the log.
func (x *index) before(frame int64) (offset int64) {
	n := sort.Search(len(x.entries), func(i int) bool { return x.entries[i].frame > frame })
	if n == 0 {
		return int64(len(magic))
	}
	return x.entries[n-1].offset
}
