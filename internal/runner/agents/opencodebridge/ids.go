package opencodebridge

import (
	"fmt"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/opencode/opencodeformat"
)

// newID returns an id of a run that sorts after all ids up to last, if its time prefix allows that.
func newID(kind, runID string, now time.Time, last string) string {
	return markedID(kind, opencodeformat.RunMark(runID), now, last)
}

// markedID is newID with the given end of the id.
func markedID(kind, mark string, now time.Time, last string) string {
	ms := now.UnixMilli()
	if newest := opencodeformat.IdTime(last, now); last != "" && newest.UnixMilli() >= ms {
		ms = newest.UnixMilli() + 1
	}
	return fmt.Sprintf("%s_%012x%s", kind, (ms<<12)&(1<<48-1), mark)
}
