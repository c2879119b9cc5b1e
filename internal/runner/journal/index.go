package journal

import "sort"

const (
	// indexFrames and indexBytes bound the distance between entries of an index, except for one
	// long record.
	indexFrames = 64
	indexBytes  = 256 << 10
)

// index contains the offsets of some frames in the log. It is only in memory and can be rebuilt
// from the log.
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

// before returns the last indexed frame that is not after the given one, and its offset. Without
// one, it returns the beginning of the log.
func (x *index) before(frame int64) (offset int64) {
	n := sort.Search(len(x.entries), func(i int) bool { return x.entries[i].frame > frame })
	if n == 0 {
		return int64(len(magic))
	}
	return x.entries[n-1].offset
}
