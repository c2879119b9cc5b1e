package turn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

const (
	// maxLastSegments bounds the bytes of segments that are stored with the outcome of a run.
	maxLastSegments = 256 << 10
	// segmentsTimeout bounds storing these segments if the attempt fails at the same time.
	segmentsTimeout = 5 * time.Second
)

// commitSegments stores the segments among the messages. Segments of the end of a turn are kept for
// the end of the run, whose transaction stores them, unless they are large.
func (a *attempt) commitSegments(ctx context.Context, messages []runner.Message) error {
	segments := a.last
	for _, m := range messages {
		if s, ok := m.(*runner.Segment); ok {
			segments = append(segments, transcript.Segment{
				SessionID: a.in.SessionID, RunID: a.in.RunID,
				Path: s.Path, Version: s.Version, Offset: s.Offset, Data: s.Data,
			})
		}
	}
	if len(segments) == len(a.last) {
		return nil
	}
	bytes := 0
	for _, s := range segments {
		bytes += len(s.Data)
	}
	if a.flushing && bytes <= maxLastSegments {
		a.last = segments
		return nil
	}
	a.last = nil
	if err := a.StoreSegments(ctx, a.in.SessionID, a.in.RunID, segments); err != nil {
		return err
	}
	a.progress.Made()
	return nil
}

// StoreSegments stores segments of the transcripts of a run. After a gap, the next attempt asks its
// runner again for the segments after the stored end. If a runner keeps leaving gaps, the turn
// fails.
func (x *Executor) StoreSegments(ctx context.Context, sessionID, runID string, segments []transcript.Segment) error {
	err := x.Store.TranscriptAppend(ctx, segments)
	if failure.CodeOf(err) != failure.IllegalState {
		return Stored(err)
	}
	gaps, countErr := x.Store.TranscriptGap(ctx, sessionID, runID)
	if countErr != nil {
		return errors.Join(err, Stored(countErr))
	}
	if gaps < transcript.MaxGaps {
		return err
	}
	return final(Refused, fmt.Errorf("the runner violated its protocol: it left %d gaps in transcripts: %w", gaps, err))
}
